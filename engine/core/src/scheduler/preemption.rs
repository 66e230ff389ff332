//! Who gives way to whom.

use super::{Decision, Scheduler, WaitReason};
use crate::sequence::SequenceId;

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

    /// The last of those that run, from `self.running[index]` on, that is in no step in flight.
    pub(super) fn last_idle(&self, index: usize) -> Option<usize> {
        (index..self.running.len()).rev().find(|&i| !self.sequence(self.running[i]).in_flight())
    }

    /// Sends `self.running[index]` back to wait. Its tokens stay; its KV is computed again once it is admitted anew.
    pub(super) fn preempt(&mut self, index: usize, beneficiary: SequenceId) {
        let row = self.running.remove(index);
        self.decisions.push(Decision::Preempted { id: self.sequence(row).id, beneficiary });
        let sequence = self.vacate(row);
        self.counters.preemptions += 1;
        self.waiting.push(sequence, self.counters.steps);
    }
}
