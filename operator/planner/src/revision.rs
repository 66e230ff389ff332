//! Which template a service's pods are made from.

use k8s_openapi::api::{apps::v1::ControllerRevision, core::v1::PodTemplateSpec};

use crate::{
    ValidatedService, build,
    contract::{REVISION_LABEL, SPEC_HASH_ANNOTATION},
    hash,
};

/// Revisions kept beside the one in use and those that pods still have.
const HISTORY: usize = 5;

/// A rendered pod template.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    /// Hash of the template; label of its pods.
    pub hash: String,
    /// Hash of the spec that it was rendered from.
    pub spec_hash: String,
    /// Counts up with each new template of a service.
    pub number: i64,
    /// What pods are made of.
    pub template: PodTemplateSpec,
}

/// The revision to bring replicas to.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// The revision.
    pub revision: Revision,
    /// Whether no ControllerRevision holds it yet.
    pub is_new: bool,
}

impl Revision {
    /// Reads a ControllerRevision; none when it is not one that the operator wrote.
    pub fn read(stored: &ControllerRevision) -> Option<Self> {
        let meta = &stored.metadata;
        let template = serde_json::from_value(stored.data.0.get("template")?.clone()).ok()?;
        Some(Self {
            hash: meta.labels.as_ref()?.get(REVISION_LABEL)?.clone(),
            spec_hash: meta.annotations.as_ref()?.get(SPEC_HASH_ANNOTATION)?.clone(),
            number: stored.revision?,
            template,
        })
    }
}

/// Takes the stored revision of this very spec, else renders one. So an operator that renders differently, or has
/// another default image, changes nothing until the spec changes.
pub fn choose(service: &ValidatedService, stored: &[Revision], default_image: &str) -> Chosen {
    let of_spec = stored.iter().filter(|r| r.spec_hash == service.spec_hash).max_by_key(|r| r.number);
    if let Some(revision) = of_spec {
        return Chosen { revision: revision.clone(), is_new: false };
    }
    let template = build::template(service, default_image);
    let hash = hash::of_json(&template).expect("a template is JSON");
    if let Some(same) = stored.iter().find(|r| r.hash == hash) {
        return Chosen { revision: same.clone(), is_new: false };
    }
    let number = stored.iter().map(|r| r.number).max().unwrap_or(0) + 1;
    Chosen {
        revision: Revision { hash, spec_hash: service.spec_hash.clone(), number, template },
        is_new: true,
    }
}

/// Hashes of stored revisions that nothing needs: neither the one in use, nor a pod, nor the recent history.
pub fn unneeded(stored: &[Revision], in_use: &str, of_pods: &[&str]) -> Vec<String> {
    let mut idle: Vec<_> =
        stored.iter().filter(|r| r.hash != in_use && !of_pods.contains(&r.hash.as_str())).collect();
    idle.sort_by_key(|r| std::cmp::Reverse(r.number));
    idle.into_iter().skip(HISTORY).map(|r| r.hash.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::fixtures;

    #[test]
    fn another_default_image_changes_nothing_for_a_known_spec() {
        let service = fixtures::service();
        let first = choose(&service, &[], "engine:1");
        assert!(first.is_new);
        let second = choose(&service, std::slice::from_ref(&first.revision), "engine:2");
        assert_eq!(second, Chosen { revision: first.revision, is_new: false });
    }

    #[test]
    fn a_changed_spec_gets_the_next_number() {
        let service = fixtures::service();
        let first = choose(&service, &[], "engine:1").revision;
        let changed = fixtures::changed_service();
        let second = choose(&changed, std::slice::from_ref(&first), "engine:1");
        assert!(second.is_new && second.revision.number == 2 && second.revision.hash != first.hash);
    }

    #[test]
    fn a_spec_written_differently_that_renders_the_same_is_the_same_revision() {
        let service = fixtures::service();
        let first = choose(&service, &[], "engine:1").revision;
        let rewritten = ValidatedService { spec_hash: "other".into(), ..service };
        assert_eq!(choose(&rewritten, std::slice::from_ref(&first), "engine:1").revision, first);
    }

    #[test]
    fn history_keeps_what_is_used_and_the_newest() {
        let base = choose(&fixtures::service(), &[], "engine:1").revision;
        let stored: Vec<_> =
            (0..9).map(|n| Revision { hash: format!("r{n}"), number: n, ..base.clone() }).collect();
        assert_eq!(unneeded(&stored, "r8", &["r0"]), ["r2", "r1"]);
    }
}
