//! Who gives way to whom.

use super::{Decision, Preemption, PreemptionMode, Scheduler, WaitReason};
use crate::plan::Row;
use crate::sequence::{Sequence, SequenceId, Swapped};

impl Scheduler {
    /// Frees blocks until `num_blocks` are available, by preempting held sequences, then those that run, last first, down to
    /// `self.running[index]` itself. `false` when that one had to go too, or when it must wait for others that are in
    /// flight; none behind it can run then either.
    pub(super) fn make_room(&mut self, num_blocks: u32, index: usize) -> bool {
        let beneficiary = self.sequence(self.running[index]).id;
        while self.kv.num_available() < num_blocks {
            if self.preempt_held(beneficiary) {
                continue;
            }
            let is_last = index + 1 == self.running.len();
            let Some(victim) = self.last_idle(index).filter(|&victim| victim != index || is_last) else {
                let because =
                    WaitReason::NoBlocks { num_needed: num_blocks, num_available: self.kv.num_available() };
                self.decisions.push(Decision::Waits { id: beneficiary, because });
                return false;
            };
            self.preempt(victim, beneficiary);
            if victim == index {
                return false;
            }
        }
        true
    }

    /// The last of those that run, from `self.running[index]` on, that can give way.
    pub(super) fn last_idle(&self, index: usize) -> Option<usize> {
        (index..self.running.len()).rev().find(|&i| self.may_give_way(self.running[i]))
    }

    /// Whether the sequence of a row can lose its blocks in this plan: no step in flight writes to them, and what the plan
    /// copies is still there after it has filled blocks from host memory.
    pub(super) fn may_give_way(&self, row: Row) -> bool {
        !self.sequence(row).in_flight() && !self.copied.contains(&row)
    }

    /// Sends `self.running[index]` back to wait.
    pub(super) fn preempt(&mut self, index: usize, beneficiary: SequenceId) {
        let row = self.running.remove(index);
        let sequence = self.give_up(row, beneficiary);
        self.waiting.push(sequence, self.counters.steps);
    }

    /// Takes the sequence out of its row for another. Its tokens stay; its KV goes to host memory, or is computed again
    /// once it is admitted anew.
    pub(super) fn give_up(&mut self, row: Row, beneficiary: SequenceId) -> Sequence {
        let how = self.how_to_preempt(row);
        self.decisions.push(Decision::Preempted { id: self.sequence(row).id, beneficiary, how });
        let swapped = match how {
            Preemption::Recompute => {
                self.counters.recompute_preemptions += 1;
                None
            }
            Preemption::Swap => {
                self.counters.swap_preemptions += 1;
                let tables = self.kv.swap_out(row, &mut self.host, &mut self.swapped_out);
                Some(Swapped { tables, step: self.counters.steps + 1 })
            }
        };
        let mut sequence = self.vacate(row);
        sequence.swapped = swapped;
        sequence
    }

    fn how_to_preempt(&self, row: Row) -> Preemption {
        let (num_blocks, num_computed) = (self.kv.num_held(row), self.sequence(row).num_computed_tokens);
        let is_possible = num_blocks > 0 && num_blocks <= self.host.num_free();
        let is_cheaper = || {
            let num_lost = self.kv.num_lost_tokens(row, num_computed);
            self.costs.is_some_and(|costs| costs.favour_swap(num_blocks, num_lost))
        };
        let swaps = match self.config.preemption_mode {
            PreemptionMode::Recompute => false,
            PreemptionMode::Swap => is_possible,
            PreemptionMode::ByCost => is_possible && is_cheaper(),
        };
        if swaps { Preemption::Swap } else { Preemption::Recompute }
    }

    /// Gives up what a step that failed was to write to host memory: nobody knows whether it did.
    pub(super) fn lose_swapped(&mut self, step: u64) {
        for sequence in self.waiting.iter_mut().chain(self.parked.values_mut()) {
            if let Some(swapped) = sequence.swapped.take_if(|swapped| swapped.step == step) {
                self.host.give_back(&swapped.tables);
            }
        }
    }
}
