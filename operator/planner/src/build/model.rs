//! How the weights reach the engine: a claim mounted read-only, or an init container that downloads them.

use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, PersistentVolumeClaimVolumeSource, Volume, VolumeMount,
};

use super::engine;
use crate::{
    ValidatedService,
    contract::{FETCH_CONTAINER, MODELS_DIR},
    validate::ModelSource,
};

const VOLUME: &str = "models";

/// Path of the model as the engine sees it.
pub fn model_path(source: &ModelSource) -> String {
    match source {
        ModelSource::Claim { path, .. } => format!("{MODELS_DIR}/{path}"),
        ModelSource::Http { file, .. } => format!("{MODELS_DIR}/{file}"),
        ModelSource::File { path } => path.clone(),
    }
}

pub(super) fn volume(source: &ModelSource) -> Option<Volume> {
    let named = Volume { name: VOLUME.into(), ..Volume::default() };
    match source {
        ModelSource::Claim { claim, .. } => Some(Volume {
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: claim.clone(),
                read_only: Some(true),
            }),
            ..named
        }),
        ModelSource::Http { .. } => {
            Some(Volume { empty_dir: Some(EmptyDirVolumeSource::default()), ..named })
        }
        ModelSource::File { .. } => None,
    }
}

/// The engine reads its model and never writes it.
pub(super) fn engine_mount(source: &ModelSource) -> Option<VolumeMount> {
    volume(source).map(|_| mount(true))
}

/// The init container that downloads the model; none for a model that is there already.
pub(super) fn fetch_container(service: &ValidatedService, image: &str) -> Option<Container> {
    let ModelSource::Http { uri, .. } = &service.source else { return None };
    let mut args = vec!["fetch".to_owned(), uri.clone(), "--to".into(), model_path(&service.source)];
    args.extend(service.sha256.iter().flat_map(|sum| ["--sha256".to_owned(), sum.clone()]));
    Some(Container {
        name: FETCH_CONTAINER.into(),
        args: Some(args),
        volume_mounts: Some(vec![mount(false)]),
        ..engine::container_base(image)
    })
}

fn mount(read_only: bool) -> VolumeMount {
    VolumeMount {
        name: VOLUME.into(),
        mount_path: MODELS_DIR.into(),
        read_only: Some(read_only),
        ..VolumeMount::default()
    }
}
