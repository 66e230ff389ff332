use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::ValidatedService;

/// Metadata of a child of `service`: named, labelled, and collected when the service goes.
pub(super) fn child_meta(service: &ValidatedService, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(service.namespace.clone()),
        labels: Some(super::labels(&service.name)),
        owner_references: Some(vec![OwnerReference {
            api_version: format!("{}/v1alpha1", regatta_crds::GROUP),
            kind: "LLMService".into(),
            name: service.name.clone(),
            uid: service.uid.clone(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..ObjectMeta::default()
    }
}
