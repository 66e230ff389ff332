//! What is written down. One [`Header`], then [`ScheduleRecord`]s in the order in which things happened.

use serde::{Deserialize, Serialize};

use crate::plan::{BlockCopy, BlockId, BlockSwap, Row, SequencePlan, StepPlan};
use crate::runner::RunnerLimits;
use crate::scheduler::{NewSequence, PreemptionCosts, SchedulerConfig};
use crate::sequence::SequenceId;

/// Version of the format; a reader refuses any other.
pub const FORMAT_VERSION: u32 = 2;

/// In records, the token that ends a sequence, whatever it was.
pub const STOP_TOKEN: u32 = 0;

/// Bounds of what is replayed: what a scheduler sets aside grows with them.
const MAX_NUM_BLOCKS: u32 = 1 << 22;
const MAX_NUM_SEQS: u32 = 1 << 16;
const MAX_NUM_TOKENS: u32 = 1 << 24;

/// What a schedule starts from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`FORMAT_VERSION`] of the writer.
    pub regatta_schedule: u32,
    /// Version of the engine that wrote it.
    pub engine: String,
    /// The scheduler's settings.
    pub config: SchedulerConfig,
    /// The runner's limits.
    pub limits: RunnerLimits,
}

/// A header that cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Another format.
    #[error(
        "the record has format version {found}, and this program reads {FORMAT_VERSION}; replay it with the engine \
         that wrote it"
    )]
    Version {
        /// The record's.
        found: u32,
    },
    /// A number is zero or huge.
    #[error("the record's `{name}` is {value}, and must be between 1 and {max}; the file is damaged")]
    OutOfBounds {
        /// The field.
        name: &'static str,
        /// Its value.
        value: u32,
        /// The largest that is replayed.
        max: u32,
    },
}

impl Header {
    /// Refuses what would take unreasonable memory, or is no schedule of this version.
    pub fn check(&self) -> Result<(), HeaderError> {
        if self.regatta_schedule != FORMAT_VERSION {
            return Err(HeaderError::Version { found: self.regatta_schedule });
        }
        let bounds = [
            ("limits.block_size", self.limits.block_size, MAX_NUM_TOKENS),
            ("limits.num_blocks", self.limits.num_blocks, MAX_NUM_BLOCKS),
            // There may be none.
            ("limits.num_host_blocks", self.limits.num_host_blocks.max(1), MAX_NUM_BLOCKS),
            ("limits.max_num_seqs", self.limits.max_num_seqs, MAX_NUM_SEQS),
            ("limits.max_num_batched_tokens", self.limits.max_num_batched_tokens, MAX_NUM_TOKENS),
            ("limits.max_in_flight", self.limits.max_in_flight, MAX_NUM_SEQS),
            ("config.max_num_seqs", self.config.max_num_seqs, MAX_NUM_SEQS),
            ("config.max_num_batched_tokens", self.config.max_num_batched_tokens, MAX_NUM_TOKENS),
            ("config.max_model_len", self.config.max_model_len, MAX_NUM_TOKENS),
        ];
        match bounds.into_iter().find(|(_, value, max)| !(1..=*max).contains(value)) {
            Some((name, value, max)) => Err(HeaderError::OutOfBounds { name, value, max }),
            None => Ok(()),
        }
    }
}

/// Why a sequence was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelReason {
    /// Nobody reads its answer any more.
    Disconnected,
    /// Its text came to a stop string.
    StopString,
    /// A beam search has ended, or goes on without it.
    Beam,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ScheduleRecord {
    /// A sequence was added.
    Add(RecordedSequence),
    /// A held sequence goes on with this token.
    Resume(SequenceId, u32),
    /// A sequence was cancelled.
    Cancel(SequenceId, CancelReason),
    /// All sequences were ended: the engine shut down.
    Abort,
    /// The scheduler was told what preempting costs.
    Costs(PreemptionCosts),
    /// The prefix cache was emptied.
    Reset,
    /// The scheduler was asked for a step and had one.
    Plan(RecordedPlan),
    /// The scheduler was asked for a step and had none.
    Nothing,
    /// The oldest step in flight was settled with these tokens, by [`RecordedPlan::sequences`].
    Settle(Vec<Vec<u32>>),
    /// The oldest step in flight could not be run.
    Fail,
    /// The recording ended here, as it should.
    End,
}

/// A sequence as far as scheduling depends on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedSequence {
    /// Its name.
    pub id: SequenceId,
    /// Pseudonyms of the prompt tokens.
    pub prompt: Vec<u32>,
    /// Most tokens to generate.
    pub max_tokens: u32,
    /// See [`NewSequence::priority`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// See [`NewSequence::forks`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forks: Option<SequenceId>,
    /// See [`NewSequence::holds`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub holds: bool,
    /// Whether log-probabilities of the prompt are computed, so that none of it comes from the cache.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prompt_logprobs: bool,
}

impl RecordedSequence {
    /// A sequence with the pseudonyms of its prompt.
    pub fn new(new: &NewSequence, prompt: Vec<u32>) -> Self {
        Self {
            id: new.id,
            prompt,
            max_tokens: new.sampling.max_tokens,
            priority: new.priority,
            forks: new.forks,
            holds: new.holds,
            prompt_logprobs: new.sampling.prompt_logprobs.is_some(),
        }
    }
}

fn is_zero(value: &i32) -> bool {
    *value == 0
}

/// A [`StepPlan`] without tokens and without how they are chosen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedPlan {
    /// [`StepPlan::step`].
    pub step: u64,
    /// [`StepPlan::released`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub released: Vec<Row>,
    /// [`StepPlan::swapped_out`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub swapped_out: Vec<BlockSwap>,
    /// [`StepPlan::admitted`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admitted: Vec<RecordedAdmission>,
    /// [`StepPlan::swapped_in`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub swapped_in: Vec<BlockSwap>,
    /// [`StepPlan::block_copies`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub block_copies: Vec<BlockCopy>,
    /// [`StepPlan::sequences`].
    pub sequences: Vec<RecordedShare>,
    /// [`StepPlan::new_blocks`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub new_blocks: Vec<BlockId>,
}

/// Row and prompt length in tokens of a sequence that enters a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedAdmission(pub Row, pub u32);

/// Row, position, number of tokens, number of placeholders, number of new blocks and whether it samples: see
/// [`SequencePlan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedShare(pub Row, pub u32, pub u32, pub u32, pub u32, pub bool);

impl From<&StepPlan> for RecordedPlan {
    fn from(plan: &StepPlan) -> Self {
        let share = |s: &SequencePlan| {
            RecordedShare(s.row, s.position, s.num_tokens, s.num_placeholders, s.num_new_blocks, s.samples)
        };
        Self {
            step: plan.step,
            released: plan.released.clone(),
            swapped_out: plan.swapped_out.clone(),
            admitted: plan.admitted.iter().map(|a| RecordedAdmission(a.row, a.num_prompt_tokens)).collect(),
            swapped_in: plan.swapped_in.clone(),
            block_copies: plan.block_copies.clone(),
            sequences: plan.sequences.iter().map(share).collect(),
            new_blocks: plan.new_blocks.clone(),
        }
    }
}
