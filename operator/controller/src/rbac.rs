//! The rights that the operator needs, and no more. The chart's rules are compared with these.

use k8s_openapi::api::rbac::v1::PolicyRule;

/// Rules of the ClusterRole, or of a Role in the watched namespace. No right on Secrets: pods mount them, the
/// operator never reads them.
pub fn cluster_rules() -> Vec<PolicyRule> {
    vec![
        rule("regatta.dev", &["llmservices"], &["get", "list", "watch", "patch"]),
        rule("regatta.dev", &["llmservices/status"], &["patch"]),
        // Owner references that block deletion ask for this right.
        rule("regatta.dev", &["llmservices/finalizers"], &["update"]),
        rule("", &["pods"], &["get", "list", "watch", "create", "patch", "delete"]),
        rule("", &["pods/status"], &["patch"]),
        rule("", &["services"], &["get", "list", "watch", "create", "patch"]),
        rule("", &["persistentvolumeclaims"], &["get"]),
        rule("apps", &["controllerrevisions"], &["get", "list", "watch", "create", "delete"]),
        // Listed by pod, when its volumes or its network do not come: nothing else says why.
        rule("events.k8s.io", &["events"], &["list", "create", "patch"]),
    ]
}

/// Rules of the Role in the operator's own namespace.
pub fn lease_rules() -> Vec<PolicyRule> {
    vec![rule("coordination.k8s.io", &["leases"], &["get", "create", "update"])]
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |items: &[&str]| items.iter().map(|i| (*i).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: &str = include_str!("../../../charts/regatta/files/operator-rules.yaml");
    const LEASE: &str = include_str!("../../../charts/regatta/files/operator-lease-rules.yaml");

    #[test]
    fn the_chart_gives_the_rights_that_are_needed_and_no_more() {
        let read = |yaml| serde_saphyr::from_str::<Vec<PolicyRule>>(yaml).expect("rules");
        assert_eq!(read(CLUSTER), cluster_rules());
        assert_eq!(read(LEASE), lease_rules());
    }

    #[test]
    fn nothing_is_said_about_secrets_or_everything() {
        let all = cluster_rules().into_iter().chain(lease_rules());
        let mut words = all.flat_map(|r| r.verbs.into_iter().chain(r.resources.into_iter().flatten()));
        assert!(!words.any(|w| w == "*" || w.contains("secret")));
    }
}
