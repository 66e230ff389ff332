//! Why a pod does not run, told from its status.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, PodStatus};

use super::last_words::last_words;
use crate::contract::{ENGINE_CONTAINER, FETCH_CONTAINER, MODELS_DIR, REFUSED_EXIT_CODE};

/// Longest message that is carried on into conditions, in characters.
const MAX_MESSAGE: usize = 1024;
/// A container that ran this long and ended starts a new series of failures, as the kubelet counts them.
const STABLE: SignedDuration = SignedDuration::from_mins(10);

/// What keeps a pod from running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The kind of cause.
    pub cause: Cause,
    /// The cluster's or the engine's own words.
    pub message: String,
    /// Whether the kubelet is about to mend it: a replica that took requests ended once and starts again.
    pub passing: bool,
}

/// Kinds of causes; each is a reason of the condition `Stalled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The image cannot be pulled.
    ImagePullFailed,
    /// A volume cannot be attached or mounted.
    VolumeMountFailed,
    /// The node cannot give the pod a network or a sandbox.
    PodSandboxFailed,
    /// The model's file is not the one that `sha256` names.
    ChecksumMismatch,
    /// There is no such file or folder on the model's volume.
    ModelNotFound,
    /// The init container could not bring the model.
    ModelFetchFailed,
    /// The container was killed for its memory.
    OutOfMemory,
    /// The engine ends again and again.
    CrashLoop,
    /// The container could not be made, such as for a missing Secret.
    ContainerConfigInvalid,
    /// The pod was ended by its node.
    PodFailed,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 10] = [
        Self::ImagePullFailed,
        Self::VolumeMountFailed,
        Self::PodSandboxFailed,
        Self::ChecksumMismatch,
        Self::ModelNotFound,
        Self::ModelFetchFailed,
        Self::OutOfMemory,
        Self::CrashLoop,
        Self::ContainerConfigInvalid,
        Self::PodFailed,
    ];
}

/// What a container is for its pod.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Runs to its end before the others start.
    Init,
    /// Runs as long as the pod; `served` if the pod took requests once.
    Main { served: bool },
}

/// `served` tells whether the pod took requests once.
pub(super) fn of(status: &PodStatus, finished: bool, served: bool) -> Option<Trouble> {
    let of_role = |role| move |c: &ContainerStatus| of_container(c, role);
    let init = status.init_container_statuses.iter().flatten().filter_map(of_role(Role::Init));
    let main = status.container_statuses.iter().flatten().filter_map(of_role(Role::Main { served }));
    init.chain(main).min_by_key(|t| t.cause).or_else(|| {
        let reason = status.reason.as_deref().unwrap_or("Failed");
        let message = status.message.as_deref().unwrap_or("no message");
        finished.then(|| trouble(Cause::PodFailed, &format!("{reason}: {message}")))
    })
}

pub(super) fn unschedulable(status: &PodStatus) -> Option<String> {
    let scheduled = status.conditions.iter().flatten().find(|c| c.type_ == "PodScheduled")?;
    let refused = scheduled.status == "False" && scheduled.reason.as_deref() == Some("Unschedulable");
    refused.then(|| cut(scheduled.message.as_deref().unwrap_or("no node takes the pod")))
}

fn of_container(status: &ContainerStatus, role: Role) -> Option<Trouble> {
    let state = status.state.as_ref()?;
    let waiting = state.waiting.as_ref();
    let reason = waiting.and_then(|w| w.reason.as_deref()).unwrap_or_default();
    let message = waiting.and_then(|w| w.message.as_deref()).unwrap_or(reason);
    match reason {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "ImageInspectError"
        | "RegistryUnavailable"
        | "SignatureValidationFailed" => Some(trouble(Cause::ImagePullFailed, message)),
        "CreateContainerConfigError" if names_what_is_missing(message) => Some(trouble(
            Cause::ContainerConfigInvalid,
            &format!(
                "{message}; create it in this namespace, or correct spec.engine.env or spec.podTemplate"
            ),
        )),
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
            Some(trouble(Cause::ContainerConfigInvalid, message))
        }
        _ => match last_end(status, role) {
            Some(end) => Some(of_end(status, end, role)),
            None => (reason == "CrashLoopBackOff").then(|| trouble(Cause::CrashLoop, message)),
        },
    }
}

/// How the container ended, unless it has done its work or started well since. While it is tried again this stays
/// what is wrong with it, so that conditions do not come and go with each try.
fn last_end(status: &ContainerStatus, role: Role) -> Option<&ContainerStateTerminated> {
    let state = status.state.as_ref()?;
    if state.terminated.is_some() {
        return state.terminated.as_ref().filter(|end| end.exit_code != 0);
    }
    let end = status.last_state.as_ref()?.terminated.as_ref()?;
    let counts = match role {
        Role::Init => end.exit_code != 0,
        // An engine never ends by itself.
        Role::Main { .. } => state.running.is_none() || status.started != Some(true),
    };
    counts.then_some(end)
}

fn of_end(status: &ContainerStatus, end: &ContainerStateTerminated, role: Role) -> Trouble {
    let (cause, message) = explain(status, end);
    let again = is_loop(status, end) || end.exit_code == REFUSED_EXIT_CODE;
    let passing = role == Role::Main { served: true } && !again;
    Trouble { passing, ..trouble(cause, &message) }
}

/// Why the container ended, with what helps.
pub(super) fn explain(status: &ContainerStatus, end: &ContainerStateTerminated) -> (Cause, String) {
    let container = &status.name;
    let message = match last_words(end.message.as_deref().unwrap_or_default()) {
        words if words.is_empty() => {
            format!("container {container} ended with exit code {} and no message", end.exit_code)
        }
        words => words,
    };
    let lower = message.to_lowercase();
    match end.reason.as_deref() {
        Some("OOMKilled") => (
            Cause::OutOfMemory,
            format!("container {container} was killed for its memory; {}", memory_remedy(container)),
        ),
        Some("StartError" | "ContainerCannotRun") => (Cause::ContainerConfigInvalid, message),
        _ if lower.contains("sha256") || lower.contains("sha-256") || lower.contains("checksum") => {
            (Cause::ChecksumMismatch, message)
        }
        _ if container == FETCH_CONTAINER => (Cause::ModelFetchFailed, message),
        _ if lower.contains("no such file") && message.contains(MODELS_DIR) => (
            Cause::ModelNotFound,
            format!("{message}; correct spec.model.uri, or put the model on the volume"),
        ),
        _ => (Cause::CrashLoop, message),
    }
}

fn memory_remedy(container: &str) -> &'static str {
    match container {
        ENGINE_CONTAINER => {
            "raise spec.resources.memory (with sharedMemory in it), or make the engine take less with kv-cache-memory-bytes, max-model-len or max-num-seqs in spec.engine.args"
        }
        _ => "raise spec.resources.memory",
    }
}

/// Whether the container ended soon after it had ended before.
fn is_loop(status: &ContainerStatus, end: &ContainerStateTerminated) -> bool {
    let lived = match (&end.started_at, &end.finished_at) {
        (Some(start), Some(finish)) => finish.0.duration_since(start.0),
        _ => SignedDuration::ZERO,
    };
    let is_up = status.state.as_ref().is_some_and(|s| s.running.is_some());
    let num_ends = status.restart_count + i32::from(!is_up);
    num_ends > 1 && lived < STABLE
}

/// Whether the kubelet says that a Secret, a ConfigMap or a key of one does not exist.
pub(super) fn names_what_is_missing(message: &str) -> bool {
    let lower = message.to_lowercase();
    let is = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    is(&["secret", "configmap"]) && is(&["not found", "couldn't find key", "non-existent"])
}

pub(super) fn trouble(cause: Cause, message: &str) -> Trouble {
    Trouble { cause, message: cut(message), passing: false }
}

/// The end holds the last log line, so that end is kept.
fn cut(message: &str) -> String {
    let skip = message.chars().count().saturating_sub(MAX_MESSAGE);
    message.chars().skip(skip).collect()
}
