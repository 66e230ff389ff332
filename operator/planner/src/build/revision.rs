use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::json;

use super::{TEMPLATE_VERSION, owner};
use crate::{
    ValidatedService,
    contract::{REVISION_LABEL, SPEC_HASH_ANNOTATION},
    names,
    revision::Revision,
};

/// The record of `revision`: its template, and the spec it was rendered from.
pub fn controller_revision(service: &ValidatedService, revision: &Revision) -> ControllerRevision {
    let mut metadata = owner::child_meta(service, names::revision_name(&service.name, &revision.hash));
    metadata.labels.get_or_insert_default().insert(REVISION_LABEL.to_owned(), revision.hash.clone());
    metadata.annotations = Some([(SPEC_HASH_ANNOTATION.to_owned(), revision.spec_hash.clone())].into());
    ControllerRevision {
        metadata,
        revision: Some(revision.number),
        data: RawExtension(json!({"templateVersion": TEMPLATE_VERSION, "template": revision.template})),
    }
}

#[cfg(test)]
mod tests {
    use crate::{build::fixtures, revision};

    #[test]
    fn a_stored_revision_reads_back_as_it_was() {
        let service = fixtures::service();
        let chosen = revision::choose(&service, &[], "engine:1").revision;
        let stored = super::controller_revision(&service, &chosen);
        assert_eq!(revision::Revision::read(&stored), Some(chosen));
        insta::assert_yaml_snapshot!(stored.metadata);
    }
}
