//! The engine's pure core: sequences, scheduler, KV bookkeeping, and the step plan that a runner executes.
//!
//! Nothing here knows a clock, a channel, a tensor or a socket: values in, values out.

pub mod event;
pub mod kv;
pub mod plan;
pub mod runner;
pub mod sampling;
pub mod scheduler;
pub mod sequence;
