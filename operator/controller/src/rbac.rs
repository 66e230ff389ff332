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
        rule("events.k8s.io", &["events"], &["create", "patch"]),
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
