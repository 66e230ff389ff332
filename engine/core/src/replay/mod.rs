//! Schedules as records: what the scheduler was told and what it planned, enough to plan the same again without a
//! model.
//!
//! A record holds no text and no token of a user. Of tokens, a scheduler needs to know only which beginnings are equal:
//! [`Pseudonyms`] puts a number in the place of each token that depends on a secret key and on all tokens before it.

mod pseudonyms;
mod record;
mod recorder;
mod replayer;

pub use pseudonyms::Pseudonyms;
pub use record::{
    CancelReason, FORMAT_VERSION, Header, HeaderError, RecordedAdmission, RecordedPlan, RecordedSequence,
    RecordedShare, STOP_TOKEN, ScheduleRecord,
};
pub use recorder::{Observation, Recorder};
pub use replayer::{ReplayError, ReplayedStep, Replayer, Share};
