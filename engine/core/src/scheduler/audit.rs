//! Whether the bookkeeping agrees with itself.

use super::Scheduler;
use crate::ensure;
use crate::plan::Row;

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
        ensure(num_occupied == self.row_of.len(), || "rows and their index differ in number".to_owned())?;
        for (id, row) in &self.row_of {
            let held = self.rows[row.0 as usize].as_ref().map(|s| s.id);
            ensure(held == Some(*id), || format!("row {} should hold sequence {}", row.0, id.0))?;
        }
        ensure(self.free_rows.len() + num_occupied == self.rows.len(), || "a row is lost".to_owned())?;
        ensure(!self.free_rows.iter().any(occupied), || "a free row is occupied".to_owned())?;
        let running: Vec<_> =
            self.running.iter().filter(|row| occupied(row)).map(|&row| self.sequence(row).rank()).collect();
        let num_held = self.running.iter().filter(|row| occupied(row) && self.sequence(**row).held).count();
        let num_apart = self.held.len() - num_held;
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
