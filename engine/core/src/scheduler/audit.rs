//! Whether the bookkeeping agrees with itself.

use super::Scheduler;
use crate::ensure;
use crate::plan::Row;
use crate::sequence::Sequence;

impl Scheduler {
    /// Checks every invariant of rows, queues and blocks; says which one is broken. Looks at everything, so it is
    /// for tests and for idle moments.
    pub fn audit(&self) -> Result<(), String> {
        self.audit_rows()?;
        self.waiting.audit()?;
        let swapped =
            self.waiting.iter().chain(self.parked.values()).filter_map(|sequence| sequence.swapped.as_ref());
        self.host.audit(swapped.flat_map(|swapped| swapped.tables.blocks()))?;
        let num_tokens =
            self.rows.iter().map(|row| row.as_ref().map(|s| (s.num_computed_tokens, s.num_in_flight_tokens)));
        self.kv.audit(num_tokens.map(Option::unwrap_or_default))
    }

    fn audit_rows(&self) -> Result<(), String> {
        let occupied = |row: &Row| self.rows[row.0 as usize].is_some();
        let num_occupied = self.rows.iter().flatten().count();
        let ended = |sequence: &Sequence| sequence.ended;
        let num_ended = self.rows.iter().flatten().filter(|sequence| ended(sequence)).count();
        ensure(num_ended == self.num_ended, || "rows of ended sequences are miscounted".to_owned())?;
        ensure(num_occupied == self.row_of.len() + num_ended, || {
            "rows and their index differ in number".to_owned()
        })?;
        for (id, row) in &self.row_of {
            let live = self.rows[row.0 as usize].as_ref().filter(|sequence| !ended(sequence)).map(|s| s.id);
            ensure(live == Some(*id), || format!("row {} should hold sequence {}", row.0, id.0))?;
        }
        for sequence in self.rows.iter().flatten() {
            let in_flight = sequence.num_in_flight_tokens > 0;
            ensure(sequence.in_flight() == in_flight || sequence.ended, || {
                format!(
                    "sequence {} has steps in flight without tokens, or tokens without steps",
                    sequence.id.0
                )
            })?;
            ensure(sequence.in_flight() || !sequence.ended, || {
                format!("sequence {} has ended and lingers", sequence.id.0)
            })?;
        }
        ensure(self.free_rows.len() + num_occupied == self.rows.len(), || "a row is lost".to_owned())?;
        ensure(!self.free_rows.iter().any(occupied), || "a free row is occupied".to_owned())?;
        let running: Vec<_> =
            self.running.iter().filter(|row| occupied(row)).map(|&row| self.sequence(row).rank()).collect();
        let among_running = |is: fn(&Sequence) -> bool| {
            self.running.iter().filter(|row| occupied(row) && is(self.sequence(**row))).count()
        };
        let num_held = self.held.len() - among_running(|sequence| sequence.held);
        let num_apart = num_held + num_ended - among_running(|sequence| sequence.ended);
        ensure(running.len() + num_apart == num_occupied, || {
            "an occupied row is not among the running".to_owned()
        })?;
        let mut held = self.held.iter();
        ensure(held.all(|row| occupied(row) && self.sequence(*row).held), || "a row is not held".to_owned())?;
        ensure(self.parked.values().all(|sequence| sequence.held), || {
            "a parked sequence is not held".to_owned()
        })?;
        ensure(running.is_sorted(), || "running sequences are out of order".to_owned())
    }
}
