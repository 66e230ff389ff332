//! What the engine thread tells about itself.

use std::time::Instant;

use regatta_core::scheduler::SchedulerStats;

/// Whether the engine takes work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineState {
    /// Takes and runs requests.
    Running,
    /// Finishes what it has and takes nothing new.
    Draining,
    /// The thread has ended.
    Stopped,
}

/// The engine at the end of its latest step.
#[derive(Clone, Copy, Debug)]
pub struct EngineSnapshot {
    /// Whether the engine takes work.
    pub state: EngineState,
    /// The scheduler's figures; those just submitted are counted as waiting.
    pub stats: SchedulerStats,
    /// When a step was last settled, or the engine last became idle or busy.
    pub last_progress: Instant,
}

impl EngineSnapshot {
    /// Sequences that have not ended: running and waiting.
    pub fn in_flight(&self) -> usize {
        self.stats.running + self.stats.waiting
    }
}
