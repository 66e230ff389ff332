//! KV events: tells routers over ZeroMQ what the prefix cache holds, in vLLM's message layout.
//!
//! The engine thread hands what changed in a step to a bounded queue and never waits; a task publishes it on a PUB
//! socket, where a slow subscriber loses messages and delays nobody. Sequence numbers show what was lost, and the last
//! messages can be had again from a ROUTER socket.

mod config;
mod encode;
mod publisher;
mod queue;
mod replay;

pub use config::KvEventsConfig;
pub use publisher::{KvEventsError, start};
pub use queue::{KvEventBatch, KvEventSender};
