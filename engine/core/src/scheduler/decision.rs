//! Why a step is what it is: who waited for what, and who lost its blocks to whom.

use serde::{Deserialize, Serialize};

use crate::plan::Row;
use crate::sequence::SequenceId;

/// One decision of a step. A sequence of which none speaks takes part in the step, or stands behind one that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It got a row.
    Admitted {
        /// Whose decision this is.
        id: SequenceId,
        /// Its row.
        row: Row,
        /// Tokens whose KV came from the prefix cache, or back from host memory.
        num_cached_tokens: u32,
    },
    /// It was admitted with KV of its parent.
    Forked {
        /// Whose decision this is.
        id: SequenceId,
        /// Whose KV it shares.
        parent: SequenceId,
        /// Tokens in common.
        num_tokens: u32,
    },
    /// It takes no part in this step.
    Waits {
        /// Whose decision this is.
        id: SequenceId,
        /// What it lacks.
        because: WaitReason,
    },
    /// It lost its blocks.
    Preempted {
        /// Whose decision this is.
        id: SequenceId,
        /// Who needed them, or its row; itself when only sequences before it are left, whose blocks it may not have.
        beneficiary: SequenceId,
        /// What becomes of its KV.
        how: Preemption,
    },
}

/// What becomes of a preempted sequence's KV.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preemption {
    /// It is computed again.
    Recompute,
    /// It goes to host memory.
    Swap,
}

/// What a sequence lacks in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// Every row holds another sequence.
    NoRow,
    /// The step's tokens are given to those before it.
    NoBudget,
    /// As many prompts as may be are in parts already, and this one would be, too.
    TooManyPartialPrefills,
    /// Too few blocks.
    NoBlocks {
        /// Blocks it needs, with those promised to sequences that run.
        num_needed: u32,
        /// Blocks that can be handed out.
        num_available: u32,
    },
    /// Sequences that run lack blocks, so newcomers get none.
    RunningLackBlocks,
    /// Another sequence is computing what it needs next.
    FollowsPrefix {
        /// Who computes it.
        leader: SequenceId,
    },
    /// A step in flight still writes its KV to host memory.
    SwapsOut,
    /// What it computes next is not known before a step in flight is settled.
    InFlight,
}
