//! Sequences that pause after each token until somebody says with which one they go on.
//!
//! While it is held a sequence keeps its row and blocks as long as nobody else needs them: it is the first to give way,
//! to anyone, since it does not know when it will go on. What it found out is told already, so nothing is lost, and
//! sequences that wait for each other never block each other.

use super::Scheduler;
use crate::plan::Row;
use crate::sequence::SequenceId;

impl Scheduler {
    /// Lets a held sequence go on with `token_id`, whatever it chose itself. Any other sequence is left alone.
    pub fn resume(&mut self, id: SequenceId, token_id: u32) {
        if let Some(mut sequence) = self.parked.remove(&id) {
            sequence.resume(token_id);
            self.waiting.push(sequence, self.counters.steps);
        } else if let Some(place) = self.held.iter().position(|&row| self.sequence(row).id == id) {
            let row = self.held.swap_remove(place);
            self.sequence_mut(row).resume(token_id);
            self.running.retain(|&other| other != row && self.rows[other.0 as usize].is_some());
            self.run(row);
        }
    }

    /// Holds the sequence of a row: it runs no more until it is resumed.
    pub(super) fn hold(&mut self, row: Row) {
        self.sequence_mut(row).held = true;
        self.held.push(row);
    }

    /// Takes row and blocks from the held sequence that comes last; `false` when there is none to take them from.
    pub(super) fn preempt_held(&mut self, beneficiary: SequenceId) -> bool {
        let may_go = (0..self.held.len()).filter(|&place| self.may_give_way(self.held[place]));
        let last = may_go.max_by_key(|&place| self.sequence(self.held[place]).rank());
        let Some(place) = last else { return false };
        let sequence = self.give_up(self.held[place], beneficiary);
        self.parked.insert(sequence.id, sequence);
        true
    }
}
