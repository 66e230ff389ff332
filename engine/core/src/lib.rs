//! The engine's pure core: sequences, scheduler, KV bookkeeping, and the step plan that a runner executes.
//!
//! Nothing here knows a clock, a channel, a tensor or a socket: values in, values out.

pub mod beam;
pub mod event;
pub mod kv;
pub mod plan;
pub mod replay;
pub mod runner;
pub mod sampling;
pub mod scheduler;
pub mod sequence;
pub mod simulate;
pub mod testing;

/// `Err` with the message unless `holds`.
fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}
