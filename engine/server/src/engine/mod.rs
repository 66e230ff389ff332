//! The engine thread: the one owner of scheduler and KV bookkeeping, between HTTP and the runner.
//!
//! A request enters through [`EngineHandle::submit`] and comes back as one [`ChoiceStream`] per choice. The thread
//! repeats drain, schedule, submit, settle, publish, with as many steps under way as the runner takes, and blocks while there is nothing to do. Dropping a stream cancels
//! its sequence. Every stream ends in exactly one terminal event.

mod config;
mod costs;
mod flight;
mod handle;
mod inbox;
mod request;
mod search;
mod snapshot;
mod stream;
mod thread;

pub use config::EngineConfig;
pub use handle::EngineHandle;
pub use regatta_core::event::{Event, FinishReason};
pub use request::{BeamOptions, GenerateRequest, SubmitError};
pub use snapshot::{EngineSnapshot, EngineState};
pub use stream::ChoiceStream;
pub use thread::{Engine, EngineThread};
