use k8s_openapi::api::core::v1::Pod;

use super::owner;
use crate::{
    ValidatedService,
    contract::{ATTEMPT_ANNOTATION, REVISION_LABEL},
    revision::Revision,
};

/// A pod called `name` of `revision`. `attempt` counts how often its replica was replaced after a failure.
pub fn pod(service: &ValidatedService, revision: &Revision, name: &str, attempt: u32) -> Pod {
    let template = revision.template.clone();
    let template_meta = template.metadata.unwrap_or_default();
    let mut meta = owner::child_meta(service, name.to_owned());
    let labels = meta.labels.get_or_insert_default();
    for (key, value) in template_meta.labels.unwrap_or_default() {
        labels.entry(key).or_insert(value);
    }
    labels.insert(REVISION_LABEL.to_owned(), revision.hash.clone());
    let mut annotations = template_meta.annotations.unwrap_or_default();
    if attempt > 0 {
        annotations.insert(ATTEMPT_ANNOTATION.to_owned(), attempt.to_string());
    }
    meta.annotations = Some(annotations).filter(|a| !a.is_empty());
    Pod { metadata: meta, spec: template.spec, status: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{build::fixtures, revision};

    #[test]
    fn a_pod_is_the_template_with_a_name_an_owner_and_its_revision() {
        let service = fixtures::service();
        let revision = revision::choose(&service, &[], "engine:1").revision;
        let pod = pod(&service, &revision, "smollm2-x-0", 2);
        insta::assert_yaml_snapshot!(pod.metadata);
        assert_eq!(pod.spec, revision.template.spec);
    }
}
