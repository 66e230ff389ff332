//! What executes step plans.

use serde::{Deserialize, Serialize};

use crate::kv::KvGroups;
use crate::plan::{StepOutput, StepPlan};

/// What a runner can hold, fixed once it is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunnerLimits {
    /// Tokens in a KV block.
    pub block_size: u32,
    /// KV blocks in the pool.
    pub num_blocks: u32,
    /// Groups of layers, each with block tables of its own.
    pub kv_groups: KvGroups,
    /// Blocks of host memory, to which preempted sequences are swapped; 0: none.
    pub num_host_blocks: u32,
    /// Rows: sequences that can be admitted at once.
    pub max_num_seqs: u32,
    /// Most tokens in one step.
    pub max_num_batched_tokens: u32,
    /// Steps that may be submitted and not yet collected; at least 1.
    pub max_in_flight: u32,
    /// Whether it keeps the tokens that it samples and puts them where the row's next step has
    /// [placeholders](crate::plan::SequencePlan::num_placeholders). A pipeline whose first stage does not hear in time
    /// what its last one sampled cannot, and overlaps steps of known tokens only.
    pub feeds_sampled_tokens: bool,
}

/// Proof of a submitted step; collected in the order of submission.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket(pub u64);

/// A step that could not be run. The sequences in it cannot go on; the runner itself can.
#[derive(Clone, Debug, thiserror::Error)]
#[error("step {step} failed: {reason}")]
pub struct StepError {
    /// [`StepPlan::step`].
    pub step: u64,
    /// The cause, in lower case.
    pub reason: String,
}

/// Runs step plans: owns KV memory and per-row state, decides nothing.
///
/// Steps take effect in the order of submission. What a step in flight behind one that failed computes for the rows of
/// that one does not count; for all others it does, unless it fails, too.
pub trait ModelRunner: Send {
    /// What this runner can hold.
    fn limits(&self) -> RunnerLimits;

    /// Starts a step. At most [`RunnerLimits::max_in_flight`] are under way at once.
    fn submit(&mut self, plan: &StepPlan) -> Result<Ticket, StepError>;

    /// Waits for the oldest submitted step and writes its result into `output` (emptied first, memory reused).
    fn collect(&mut self, ticket: Ticket, output: &mut StepOutput) -> Result<(), StepError>;
}
