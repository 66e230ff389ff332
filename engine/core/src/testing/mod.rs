//! Whole parts that stand in for others in tests, also in those of other crates.
//!
//! A [`FakeRunner`] executes step plans over a shadow of the KV memory: what it stores at a position depends on all
//! positions before it, read through the block table. A scheduler that mixes up blocks, reuses one too early, skips
//! or repeats a token thus changes the tokens that come out, and [`Reply::expected`] says what they should be.

mod fake_runner;
mod host_memory;
mod reply;
mod sight;
mod staged_runner;

pub use fake_runner::FakeRunner;
pub use reply::{Expected, Reply};
pub use staged_runner::StagedRunner;
