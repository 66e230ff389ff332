//! The status of a service, computed from what was observed and what went wrong.

mod conditions;
mod reason;
mod verdict;

pub use reason::Reason;

use jiff::Timestamp;
use regatta_crds::{Address, LLMService, LLMServiceStatus};

use crate::{
    ObservedPod, build,
    contract::HTTP_PORT,
    names::{self, Conflict},
    plan::Mode,
};

/// All that status is computed from.
#[derive(Clone, Debug)]
pub struct Situation<'a> {
    /// The service as it was read, with its previous status.
    pub service: &'a LLMService,
    /// Whether it runs.
    pub mode: Mode,
    /// Revision that its replicas are brought to; none when the spec is not valid.
    pub revision: Option<&'a str>,
    /// Its own pods.
    pub pods: &'a [ObservedPod],
    /// What went wrong in this reconcile.
    pub problems: &'a [Problem],
    /// Served names that services of other namespaces own.
    pub conflicts: &'a [Conflict],
    /// Base URL of the gateway, if there is one.
    pub gateway: Option<&'a str>,
    /// Now.
    pub now: Timestamp,
}

/// Something that pods do not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The spec breaks a rule.
    SpecInvalid(String),
    /// The API server refused the pod in a dry run.
    PodTemplateRefused(String),
    /// The claim of the model does not exist.
    ClaimMissing(String),
    /// An object that the service needs belongs to someone else.
    NameTaken {
        /// Kind of the object.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The API server refuses to create pods, such as for a quota.
    PodRefused(String),
    /// A call failed and is tried again.
    ApplyFailed(String),
}

/// Computes the status. Equal inputs but for `now` give equal status, unless a condition changes.
pub fn status(situation: &Situation<'_>) -> LLMServiceStatus {
    let meta = &situation.service.metadata;
    let name = meta.name.as_deref().unwrap_or_default();
    let count = |f: &dyn Fn(&ObservedPod) -> bool| {
        let kept = situation.pods.iter().filter(|p| !p.terminating && !p.finished && f(p)).count();
        Some(i32::try_from(kept).unwrap_or(i32::MAX))
    };
    let revision = situation.revision.map(|hash| names::revision_name(name, hash));
    let served_names = situation.service.served_names();
    LLMServiceStatus {
        observed_generation: meta.generation,
        replicas: count(&|_| true),
        ready_replicas: count(&|p| p.ready),
        routable_replicas: count(&ObservedPod::takes_requests),
        draining_replicas: count(&|p| p.drain.is_some()),
        selector: Some(build::selector(name)),
        conditions: Some(conditions::all(situation)),
        served_names: Some(served_names.clone()),
        addresses: Some(addresses(situation, &served_names)),
        revision: revision.or_else(|| previous_revision(situation)),
    }
}

/// The gateway answers for a service unless others own all its names.
fn addresses(situation: &Situation<'_>, served_names: &[String]) -> Vec<Address> {
    let meta = &situation.service.metadata;
    let name = names::service_name(meta.name.as_deref().unwrap_or_default());
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let reached = situation.conflicts.len() < served_names.len();
    let gateway = situation.gateway.filter(|_| reached).map(|url| ("gateway", url.to_owned()));
    let service = ("service", format!("http://{name}.{namespace}.svc:{HTTP_PORT}"));
    let address = |(name, url): (&str, String)| Address { name: name.into(), url };
    gateway.into_iter().chain([service]).map(address).collect()
}

fn previous_revision(situation: &Situation<'_>) -> Option<String> {
    situation.service.status.as_ref()?.revision.clone()
}

#[cfg(test)]
mod tests;
