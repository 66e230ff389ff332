//! How sequences end.

use regatta_core::event::{Event, FinishReason};
use regatta_core::replay::CancelReason;
use serde::Serialize;

/// What ended a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum End {
    StopToken,
    StopString,
    Length,
    Beam,
    Disconnected,
    Shutdown,
    Failed,
}

impl End {
    /// Every kind, in the order of a summary.
    pub(super) const ALL: [Self; 7] = [
        Self::StopToken,
        Self::StopString,
        Self::Length,
        Self::Beam,
        Self::Disconnected,
        Self::Shutdown,
        Self::Failed,
    ];

    /// The end that an event is, if it is one; `cancelled` is why it was cancelled, if it was.
    pub(super) fn of(event: &Event, cancelled: Option<CancelReason>) -> Option<Self> {
        match event {
            Event::Finished { reason: FinishReason::Stop { .. }, .. } => Some(Self::StopToken),
            Event::Finished { reason: FinishReason::Length, .. } => Some(Self::Length),
            Event::Finished { reason: FinishReason::Abort, .. } => Some(match cancelled {
                Some(CancelReason::StopString) => Self::StopString,
                Some(CancelReason::Beam) => Self::Beam,
                Some(CancelReason::Disconnected) => Self::Disconnected,
                None => Self::Shutdown,
            }),
            Event::Failed { .. } => Some(Self::Failed),
            _ => None,
        }
    }

    /// As in "ended by ...".
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::StopToken => "a stop token",
            Self::StopString => "a stop string in its text",
            Self::Length => "its length",
            Self::Beam => "its beam search, which ended or went on without it",
            Self::Disconnected => "its client, which went away",
            Self::Shutdown => "the engine's shutdown",
            Self::Failed => "an error",
        }
    }
}
