use crate::observed::Cause;

/// Every reason that a condition can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A call to the API server failed and is tried again.
    ApplyFailed,
    /// The service is being deleted.
    Deleting,
    /// Nothing is left to do.
    Done,
    /// Replicas that are no longer wanted finish their requests.
    Draining,
    /// An object of a needed name belongs to someone else.
    NameTaken,
    /// There is no replica.
    NoReplica,
    /// There are replicas, and none takes requests.
    NoRoutableReplica,
    /// Nothing waits for a person.
    NotStalled,
    /// `runPolicy: Paused`.
    Paused,
    /// The API server refuses to create pods.
    PodRefused,
    /// The API server refuses the pod's template.
    PodTemplateRefused,
    /// Replicas take requests.
    ReplicasRoutable,
    /// Replicas start.
    ReplicasStarting,
    /// Replicas of an older spec are replaced.
    RollingOut,
    /// `replicas: 0`.
    ScaledToZero,
    /// An older service of another namespace has the name.
    ServedNameTaken,
    /// The spec breaks a rule.
    SpecInvalid,
    /// The spec breaks no rule.
    SpecValid,
    /// The condition Stalled is true.
    Stalled,
    /// `runPolicy: Stopped`, and it is so.
    Stopped,
    /// `runPolicy: Stopped`, and pods are left.
    Stopping,
    /// No node takes a pod.
    Unschedulable,
    /// The claim of the model does not exist.
    VolumeClaimMissing,
    /// A pod does not run.
    Pod(Cause),
}

impl Reason {
    /// Every reason that is not a [`Cause`].
    const OTHERS: [Self; 23] = [
        Self::ApplyFailed,
        Self::Deleting,
        Self::Done,
        Self::Draining,
        Self::NameTaken,
        Self::NoReplica,
        Self::NoRoutableReplica,
        Self::NotStalled,
        Self::Paused,
        Self::PodRefused,
        Self::PodTemplateRefused,
        Self::ReplicasRoutable,
        Self::ReplicasStarting,
        Self::RollingOut,
        Self::ScaledToZero,
        Self::ServedNameTaken,
        Self::SpecInvalid,
        Self::SpecValid,
        Self::Stalled,
        Self::Stopped,
        Self::Stopping,
        Self::Unschedulable,
        Self::VolumeClaimMissing,
    ];

    /// All reasons.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::OTHERS.into_iter().chain(Cause::ALL.map(Self::Pod))
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pod(cause) => write!(f, "{cause:?}"),
            other => write!(f, "{other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The page that tells people what to do about each reason.
    const PAGE: &str = include_str!("../../../../docs/src/reference/conditions.md");

    #[test]
    fn the_page_on_conditions_explains_every_reason_and_no_other() {
        let reasons: BTreeSet<String> = Reason::all().map(|r| r.to_string()).collect();
        let told: BTreeSet<String> = PAGE
            .lines()
            .filter_map(|line| line.strip_prefix("| `"))
            .flat_map(|row| row.split(" |").next().unwrap_or_default().split([',', '`', ' ']))
            .filter(|word| !word.is_empty())
            .map(ToOwned::to_owned)
            .collect();
        let types = regatta_crds::ConditionType::ALL.map(|t| t.as_str().to_owned());
        let missing: Vec<_> = reasons.iter().filter(|r| !told.contains(*r)).collect();
        let unknown: Vec<_> = told.iter().filter(|t| !reasons.contains(*t) && !types.contains(t)).collect();
        assert!(missing.is_empty() && unknown.is_empty(), "missing: {missing:?}, unknown: {unknown:?}");
    }
}
