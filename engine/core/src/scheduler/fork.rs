//! Sequences that continue others: they take over what is computed instead of computing it again.
//!
//! A fork shares the full blocks of its parent and copies the one that both go on to write to. While its parent still
//! computes tokens that they have in common it waits; where the parent has no row any more, it is a sequence like any
//! other. One that asks for log-probabilities of the prompt, which is its parent's, is told the parent's.

use std::sync::Arc;

use super::{Scheduler, Update, WaitReason};
use crate::event::Event;
use crate::kv::BlockHash;
use crate::plan::{PositionLogprobs, Row};
use crate::sequence::{Sequence, SequenceId};

/// What a sequence takes over from its parent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fork {
    pub(super) parent: Row,
    /// Leading tokens that are computed; at least 1, and fewer than the sequence has.
    pub(super) num_tokens: u32,
}

impl Scheduler {
    /// What `child` can take over, if anything.
    ///
    /// # Errors
    /// Its parent is about to compute more of it.
    pub(super) fn fork_of(&self, child: &Sequence) -> Result<Option<Fork>, WaitReason> {
        let Some(&parent) = child.forks.and_then(|id| self.row_of.get(&id)) else { return Ok(None) };
        let sequence = self.sequence(parent);
        if !child.may_skip_prompt() {
            // It gets those that its parent computes.
            let follows = !sequence.may_skip_prompt() && sequence.prompt == child.prompt;
            return if follows { Err(WaitReason::FollowsPrefix { leader: sequence.id }) } else { Ok(None) };
        }
        let num_tokens = sequence.num_common_tokens(child).min(child.num_tokens() - 1);
        if sequence.num_computed_tokens < num_tokens {
            return Err(WaitReason::FollowsPrefix { leader: sequence.id });
        }
        let can_fork = num_tokens > 0 && self.kv.can_fork(parent, num_tokens);
        Ok(can_fork.then_some(Fork { parent, num_tokens }))
    }

    /// Reports log-probabilities of the prompt of `parent` to those of its forks that wait for their own: they are of the
    /// same prompt, so it need not be computed again.
    pub(super) fn report_to_forks(
        &mut self,
        parent: SequenceId,
        prompt: &Arc<[u32]>,
        logprobs: &[PositionLogprobs],
        updates: &mut Vec<Update>,
    ) {
        let is_fork = |child: &&mut Sequence| child.forks == Some(parent) && child.prompt == *prompt;
        for child in self.waiting.iter_mut().filter(is_fork) {
            if child.skip_prompt_logprobs() {
                updates.push(Update { id: child.id, event: Event::PromptLogprobs(logprobs.to_vec()) });
            }
        }
    }

    /// Hashes of the full blocks that the first of those that wait has in common with its parent, if it has none yet.
    pub(super) fn inherited_hashes(&self) -> Vec<BlockHash> {
        let first = self.waiting.first().filter(|first| first.block_hashes.is_empty());
        let parent = first.and_then(|first| first.forks).and_then(|id| self.row_of.get(&id));
        let (Some(first), Some(&parent)) = (first, parent) else { return Vec::new() };
        let parent = self.sequence(parent);
        let num_full = parent.num_common_tokens(first) / self.limits.block_size;
        parent.block_hashes.iter().copied().take(num_full as usize).collect()
    }
}
