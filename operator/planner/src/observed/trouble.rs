//! Why a pod does not run, told from its status.

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, PodStatus};

use crate::contract::FETCH_CONTAINER;

/// Longest message that is carried on into conditions, in characters.
const MAX_MESSAGE: usize = 1024;

/// What keeps a pod from running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The kind of cause.
    pub cause: Cause,
    /// The cluster's or the engine's own words.
    pub message: String,
}

/// Kinds of causes; each is a reason of the condition `Stalled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The image cannot be pulled.
    ImagePullFailed,
    /// The model's file is not the one that `sha256` names.
    ChecksumMismatch,
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
    /// Reason of the condition.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ImagePullFailed => "ImagePullFailed",
            Self::ChecksumMismatch => "ChecksumMismatch",
            Self::ModelFetchFailed => "ModelFetchFailed",
            Self::OutOfMemory => "OutOfMemory",
            Self::CrashLoop => "CrashLoop",
            Self::ContainerConfigInvalid => "ContainerConfigInvalid",
            Self::PodFailed => "PodFailed",
        }
    }
}

pub(super) fn of(status: &PodStatus, finished: bool) -> Option<Trouble> {
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let of_containers = containers.filter_map(of_container).min_by_key(|t| t.cause);
    of_containers.or_else(|| {
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

fn of_container(status: &ContainerStatus) -> Option<Trouble> {
    let state = status.state.as_ref()?;
    if let Some(waiting) = &state.waiting {
        let reason = waiting.reason.as_deref().unwrap_or_default();
        let message = waiting.message.as_deref().unwrap_or(reason);
        return match reason {
            "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
                Some(trouble(Cause::ImagePullFailed, message))
            }
            "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
                Some(trouble(Cause::ContainerConfigInvalid, message))
            }
            "CrashLoopBackOff" => {
                let last = status.last_state.as_ref().and_then(|s| s.terminated.as_ref());
                Some(last.map_or_else(|| trouble(Cause::CrashLoop, message), |t| of_end(&status.name, t)))
            }
            _ => None,
        };
    }
    state.terminated.as_ref().filter(|t| t.exit_code != 0).map(|t| of_end(&status.name, t))
}

fn of_end(container: &str, end: &ContainerStateTerminated) -> Trouble {
    let last_words = end.message.as_deref().map_or("", str::trim);
    let message = match last_words {
        "" => format!("container {container} ended with exit code {} and no message", end.exit_code),
        words => words.to_owned(),
    };
    let lower = message.to_lowercase();
    let cause = match end.reason.as_deref() {
        Some("OOMKilled") => Cause::OutOfMemory,
        _ if lower.contains("sha256") || lower.contains("sha-256") || lower.contains("checksum") => {
            Cause::ChecksumMismatch
        }
        _ if container == FETCH_CONTAINER => Cause::ModelFetchFailed,
        _ => Cause::CrashLoop,
    };
    let text = match cause {
        Cause::OutOfMemory => {
            format!("container {container} was killed for its memory; raise resources.memory")
        }
        _ => message,
    };
    trouble(cause, &text)
}

fn trouble(cause: Cause, message: &str) -> Trouble {
    Trouble { cause, message: cut(message) }
}

/// The end holds the last log line, so that end is kept.
fn cut(message: &str) -> String {
    let skip = message.chars().count().saturating_sub(MAX_MESSAGE);
    message.chars().skip(skip).collect()
}
