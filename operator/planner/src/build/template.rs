//! The pod template of a service. It is rendered once for each revision and then kept in a ControllerRevision, so
//! that a newer operator, which may render differently, changes no pod that runs.

use std::time::Duration;

use k8s_openapi::DeepMerge;
use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, DownwardAPIVolumeSource, EmptyDirVolumeSource, ObjectFieldSelector,
    PodReadinessGate, PodSecurityContext, PodSpec, PodTemplateSpec, SeccompProfile, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{engine, model};
use crate::{
    ValidatedService,
    contract::{POD_INFO_DIR, POD_INFO_FILE, ROUTABLE_GATE, SHARED_MEMORY_DIR},
};

/// Version of what this operator renders; kept beside each stored template.
pub const TEMPLATE_VERSION: u32 = 1;
/// Time between the end of the drain timeout and the kill, for the engine to end by itself.
pub const DRAIN_MARGIN: Duration = Duration::from_secs(10);

const NONROOT: i64 = 65532;
const POD_INFO_VOLUME: &str = "pod-info";
const SHARED_MEMORY_VOLUME: &str = "shared-memory";

/// Renders the template; `default_image` is used by services that name no image.
pub fn template(service: &ValidatedService, default_image: &str) -> PodTemplateSpec {
    let image = service.image.as_deref().unwrap_or(default_image);
    let mut template = PodTemplateSpec {
        metadata: Some(ObjectMeta { labels: Some(super::labels(&service.name)), ..ObjectMeta::default() }),
        spec: Some(pod_spec(service, image)),
    };
    if let Some(overlay) = &service.overlay {
        template.merge_from(overlay.clone());
        keep_contract(&mut template, service);
    }
    template
}

fn pod_spec(service: &ValidatedService, image: &str) -> PodSpec {
    let mut volumes = vec![pod_info_volume()];
    let mut mounts = vec![VolumeMount {
        name: POD_INFO_VOLUME.into(),
        mount_path: POD_INFO_DIR.into(),
        read_only: Some(true),
        ..VolumeMount::default()
    }];
    volumes.extend(model::volume(&service.source));
    mounts.extend(model::engine_mount(&service.source));
    if service.shared_memory.is_some() {
        volumes.push(shared_memory_volume(service));
        mounts.push(VolumeMount {
            name: SHARED_MEMORY_VOLUME.into(),
            mount_path: SHARED_MEMORY_DIR.into(),
            ..VolumeMount::default()
        });
    }
    let grace = service.drain_timeout + DRAIN_MARGIN;
    PodSpec {
        containers: vec![engine::container(service, image, mounts)],
        init_containers: model::fetch_container(service, image).map(|c| vec![c]),
        volumes: Some(volumes),
        readiness_gates: Some(vec![routable_gate()]),
        termination_grace_period_seconds: Some(i64::try_from(grace.as_secs()).unwrap_or(i64::MAX)),
        restart_policy: Some("Always".into()),
        // An engine never talks to the API server.
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        node_selector: service.node_selector.clone(),
        tolerations: service.tolerations.clone(),
        priority_class_name: service.priority_class_name.clone(),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(NONROOT),
            run_as_group: Some(NONROOT),
            seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".into(), localhost_profile: None }),
            ..PodSecurityContext::default()
        }),
        ..PodSpec::default()
    }
}

/// An overlay may add to what operator and engine agree on, never take away from it.
fn keep_contract(template: &mut PodTemplateSpec, service: &ValidatedService) {
    let meta = template.metadata.get_or_insert_default();
    meta.labels.get_or_insert_default().extend(super::labels(&service.name));
    meta.name = None;
    meta.namespace = None;
    let spec = template.spec.get_or_insert_default();
    let gates = spec.readiness_gates.get_or_insert_default();
    if !gates.contains(&routable_gate()) {
        gates.push(routable_gate());
    }
}

fn routable_gate() -> PodReadinessGate {
    PodReadinessGate { condition_type: ROUTABLE_GATE.into() }
}

fn pod_info_volume() -> Volume {
    let annotations = DownwardAPIVolumeFile {
        path: POD_INFO_FILE.into(),
        field_ref: Some(ObjectFieldSelector { field_path: "metadata.annotations".into(), api_version: None }),
        ..DownwardAPIVolumeFile::default()
    };
    Volume {
        name: POD_INFO_VOLUME.into(),
        downward_api: Some(DownwardAPIVolumeSource { items: Some(vec![annotations]), ..Default::default() }),
        ..Volume::default()
    }
}

fn shared_memory_volume(service: &ValidatedService) -> Volume {
    Volume {
        name: SHARED_MEMORY_VOLUME.into(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: Some("Memory".into()),
            size_limit: service.shared_memory.clone(),
            ..EmptyDirVolumeSource::default()
        }),
        ..Volume::default()
    }
}

#[cfg(test)]
mod tests;
