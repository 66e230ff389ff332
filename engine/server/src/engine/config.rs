//! What the engine thread is told at start.

use std::path::PathBuf;

use regatta_core::scheduler::SchedulerConfig;

use crate::kv_events::KvEventSender;

/// Limits of the engine thread. Where the runner holds less, the runner's limits win.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// What is scheduled in a step, and how.
    pub scheduler: SchedulerConfig,
    /// Most sequences that may wait for their first step; more are refused.
    pub max_queued_requests: usize,
    /// Most prompt tokens that may wait for their first step; more are refused.
    pub max_queued_tokens: usize,
    /// File into which the schedule is recorded, if any.
    pub record_schedule: Option<PathBuf>,
    /// Where changes of the prefix cache go, if anywhere.
    pub kv_events: Option<KvEventSender>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            scheduler: SchedulerConfig::default(),
            max_queued_requests: 4096,
            max_queued_tokens: 16_777_216,
            record_schedule: None,
            kv_events: None,
        }
    }
}
