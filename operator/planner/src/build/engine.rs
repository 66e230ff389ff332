//! The engine's container: arguments, environment, probes, resources.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EnvVar, HTTPGetAction, Probe, ResourceRequirements,
    SecurityContext, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString};

use super::model;
use crate::{
    ValidatedService,
    contract::{
        ACCELERATOR_ENV, ENGINE_CONTAINER, HTTP_PORT, HTTP_PORT_NAME, INTERNAL_PORT, INTERNAL_PORT_NAME,
        LIVENESS_FAILURES, LIVENESS_PERIOD_SECONDS, LIVEZ_PATH, POD_INFO_DIR, PROBE_TIMEOUT_SECONDS,
        READINESS_FAILURES, READINESS_PERIOD_SECONDS, READYZ_PATH, STARTUP_PERIOD_SECONDS,
    },
    validate::ModelSource,
};

/// An hour for a model to load from slow storage.
const STARTUP_FAILURES: i32 = 3600;

pub(super) fn container(service: &ValidatedService, image: &str, mounts: Vec<VolumeMount>) -> Container {
    Container {
        name: ENGINE_CONTAINER.into(),
        args: Some(args(service)),
        env: Some(env(service)).filter(|e| !e.is_empty()),
        ports: Some(vec![port(HTTP_PORT_NAME, HTTP_PORT), port(INTERNAL_PORT_NAME, INTERNAL_PORT)]),
        resources: Some(resources(service)),
        volume_mounts: Some(mounts),
        startup_probe: Some(Probe {
            period_seconds: Some(STARTUP_PERIOD_SECONDS),
            failure_threshold: Some(STARTUP_FAILURES),
            ..probe(READYZ_PATH)
        }),
        readiness_probe: Some(Probe {
            period_seconds: Some(READINESS_PERIOD_SECONDS),
            failure_threshold: Some(READINESS_FAILURES),
            ..probe(READYZ_PATH)
        }),
        liveness_probe: Some(Probe {
            period_seconds: Some(LIVENESS_PERIOD_SECONDS),
            failure_threshold: Some(LIVENESS_FAILURES),
            ..probe(LIVEZ_PATH)
        }),
        ..container_base(image)
    }
}

/// What every container of ours has: the image and no privilege.
pub(super) fn container_base(image: &str) -> Container {
    Container {
        image: Some(image.to_owned()),
        image_pull_policy: Some("IfNotPresent".into()),
        // The last log line becomes the termination message, so that causes are seen without a right on logs.
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".into()]), add: None }),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

/// Arguments of the engine's program, ours first, then the user's in their order.
pub fn args(service: &ValidatedService) -> Vec<String> {
    let mut args = vec!["serve".to_owned(), model::model_path(&service.source), "--served-model-name".into()];
    args.extend(service.served_names.iter().cloned());
    let mut flag = |name: &str, value: String| args.extend([format!("--{name}"), value]);
    flag("host", "0.0.0.0".into());
    flag("port", HTTP_PORT.to_string());
    flag("internal-port", INTERNAL_PORT.to_string());
    flag("pod-info", POD_INFO_DIR.into());
    flag("shutdown-timeout", service.drain_timeout.as_secs().to_string());
    // A download is checked by the container that makes it.
    if let (Some(sum), ModelSource::Claim { .. } | ModelSource::File { .. }) =
        (&service.sha256, &service.source)
    {
        flag("model-sha256", sum.clone());
    }
    for (name, values) in &service.args {
        args.push(format!("--{name}"));
        args.extend(values.iter().cloned());
    }
    args
}

fn env(service: &ValidatedService) -> Vec<EnvVar> {
    let accelerator = service.accelerator.as_ref().map(|(resource, count)| EnvVar {
        name: ACCELERATOR_ENV.into(),
        value: Some(format!("{resource}={count}")),
        value_from: None,
    });
    accelerator.into_iter().chain(service.env.iter().cloned()).collect()
}

fn resources(service: &ValidatedService) -> ResourceRequirements {
    let mut requests = BTreeMap::new();
    let mut limits = BTreeMap::new();
    if let Some(cpu) = &service.cpu {
        requests.insert("cpu".to_owned(), cpu.clone());
    }
    if let Some(memory) = &service.memory {
        requests.insert("memory".to_owned(), memory.clone());
        limits.insert("memory".to_owned(), memory.clone());
    }
    if let Some((resource, count)) = &service.accelerator {
        requests.insert(resource.clone(), Quantity(count.to_string()));
        limits.insert(resource.clone(), Quantity(count.to_string()));
    }
    let some = |map: BTreeMap<_, _>| Some(map).filter(|m| !m.is_empty());
    ResourceRequirements { requests: some(requests), limits: some(limits), claims: None }
}

fn port(name: &str, number: i32) -> ContainerPort {
    ContainerPort {
        name: Some(name.into()),
        container_port: number,
        protocol: Some("TCP".into()),
        ..ContainerPort::default()
    }
}

fn probe(path: &str) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.into()),
            port: IntOrString::String(HTTP_PORT_NAME.into()),
            ..HTTPGetAction::default()
        }),
        timeout_seconds: Some(PROBE_TIMEOUT_SECONDS),
        ..Probe::default()
    }
}
