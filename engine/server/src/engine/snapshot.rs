//! What the engine thread tells about itself.

use std::time::Instant;

use regatta_core::kv::HostUsage;

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

/// KV blocks by state: `free + cached + in_use == num_blocks`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvSnapshot {
    /// Tokens in a block.
    pub block_size: u32,
    /// Blocks in the pool.
    pub num_blocks: u32,
    /// Blocks that hold nothing.
    pub free: u32,
    /// Blocks that no sequence uses and whose content may be used again.
    pub cached: u32,
    /// Blocks that sequences use.
    pub in_use: u32,
}

/// The engine at the end of its latest step. Counters start at zero with the engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineSnapshot {
    /// Whether the engine takes work.
    pub state: EngineState,
    /// Sequences that have a row in the runner.
    pub running: usize,
    /// Sequences that wait for one, also those just submitted.
    pub waiting: usize,
    /// Sequences that have not ended: running and waiting.
    pub in_flight: usize,
    /// The KV pool.
    pub kv: KvSnapshot,
    /// Steps run.
    pub steps: u64,
    /// Prompt tokens of the sequences that passed their prefill, each counted once.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub generation_tokens: u64,
    /// Sequences that wait and have their KV in host memory.
    pub swapped: usize,
    /// Host memory for swapped blocks.
    pub host_blocks: HostUsage,
    /// Sequences that lost their KV to others and compute it again.
    pub recompute_preemptions: u64,
    /// Sequences whose KV went to host memory for others.
    pub swap_preemptions: u64,
    /// Prompt tokens that were looked up in the prefix cache, each sequence once.
    pub prefix_cache_queries: u64,
    /// Those of them that were found.
    pub prefix_cache_hits: u64,
    /// When a step was last settled, or the engine last became idle or busy.
    pub last_progress: Instant,
}
