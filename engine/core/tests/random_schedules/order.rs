//! Who comes before whom, kept independently of the scheduler, from its decisions alone.

use std::collections::{BTreeMap, BTreeSet};

use regatta_core::plan::{Row, StepPlan};
use regatta_core::scheduler::{Decision, SchedulingPolicy};
use regatta_core::sequence::SequenceId;

/// Smaller goes first: not aged, priority, arrival.
type Rank = (bool, i32, SequenceId);

struct Place {
    priority: i32,
    row: Option<Row>,
    num_waited_steps: u32,
    aged: bool,
    /// It is in nobody's way, and nobody waits for it.
    held: bool,
}

impl Place {
    fn waits(&self) -> bool {
        self.row.is_none() && !self.held
    }
}

/// The sequences that have not ended.
pub(crate) struct Order {
    policy: SchedulingPolicy,
    max_partial: u32,
    places: BTreeMap<SequenceId, Place>,
}

impl Order {
    pub(crate) fn new(policy: SchedulingPolicy, max_partial: u32) -> Self {
        Self { policy, max_partial, places: BTreeMap::new() }
    }

    pub(crate) fn arrive(&mut self, id: SequenceId, priority: i32) {
        self.places.insert(id, Place { priority, row: None, num_waited_steps: 0, aged: false, held: false });
    }

    pub(crate) fn end(&mut self, id: SequenceId) {
        self.places.remove(&id);
    }

    pub(crate) fn hold(&mut self, id: SequenceId) {
        self.place(id).held = true;
    }

    pub(crate) fn resume(&mut self, id: SequenceId) {
        self.place(id).held = false;
    }

    /// The priority of one that has not ended.
    pub(crate) fn priority(&self, id: SequenceId) -> Option<i32> {
        self.places.get(&id).map(|place| place.priority)
    }

    fn rank(&self, id: SequenceId) -> Rank {
        let place = &self.places[&id];
        match self.policy {
            SchedulingPolicy::Fcfs => (true, 0, id),
            SchedulingPolicy::Priority { .. } if place.aged => (false, 0, id),
            SchedulingPolicy::Priority { .. } => (true, place.priority, id),
        }
    }

    /// Whether one that waits comes before one that runs.
    fn may_oust(&self, waiting: SequenceId, running: SequenceId) -> bool {
        let (waiting, running) = (&self.places[&waiting], &self.places[&running]);
        self.policy != SchedulingPolicy::Fcfs && !running.aged && waiting.priority < running.priority
    }

    fn first(&self) -> SequenceId {
        let first = |runs| {
            self.places
                .iter()
                .filter(|(_, place)| place.row.is_some() == runs && !place.held)
                .map(|(&id, _)| id)
                .min_by_key(|&id| self.rank(id))
        };
        match (first(true), first(false)) {
            (Some(running), Some(waiting)) if self.may_oust(waiting, running) => waiting,
            (running, waiting) => running.or(waiting).expect("a step has sequences"),
        }
    }

    /// Takes in what was decided for a plan, which may have come to nothing, and checks that nobody was served before
    /// someone who comes first. `in_flight` are the rows of the steps before it that are not settled.
    pub(crate) fn check_plan(&mut self, plan: &StepPlan, decisions: &[Decision], in_flight: &BTreeSet<Row>) {
        self.age();
        if plan.sequences.is_empty() {
            return self.follow(decisions);
        }
        let planned: BTreeSet<Row> = plan.sequences.iter().map(|sequence| sequence.row).collect();
        let first = self.first();
        let ran_before: BTreeSet<SequenceId> =
            self.with_row().filter(|(_, row)| !in_flight.contains(row)).map(|(id, _)| id).collect();
        self.follow(decisions);

        let serves_first = self.places[&first].row.is_some_and(|row| planned.contains(&row));
        assert!(serves_first || !in_flight.is_empty(), "{first:?} comes first and has no part in the step");

        let best_waiting =
            self.places.iter().filter(|(_, place)| place.waits()).map(|(&id, _)| self.rank(id)).min();
        let num_partial = plan.sequences.iter().filter(|sequence| !sequence.samples).count();
        assert!(num_partial <= self.max_partial as usize, "{num_partial} sequences in parts");
        for (id, row) in self.with_row().filter(|(id, _)| !self.places[id].held) {
            let admitted = plan.admitted.iter().any(|admission| admission.row == row);
            if admitted {
                assert!(
                    best_waiting.is_none_or(|best| self.rank(id) < best),
                    "{id:?} was admitted out of turn"
                );
                continue;
            }
            // Those that run and come before a newcomer have their share, or would be one more in parts.
            let newcomer = self.with_row().any(|(other, row)| {
                plan.admitted.iter().any(|admission| admission.row == row) && !self.may_oust(other, id)
            });
            let served = planned.contains(&row) || !ran_before.contains(&id);
            assert!(
                served || !newcomer || num_partial == self.max_partial as usize,
                "a newcomer came before {id:?}"
            );
        }
        for place in self.places.values_mut().filter(|place| place.waits()) {
            place.num_waited_steps += 1;
        }
    }

    fn with_row(&self) -> impl Iterator<Item = (SequenceId, Row)> + '_ {
        self.places.iter().filter_map(|(&id, place)| Some((id, place.row?)))
    }

    fn age(&mut self) {
        if let SchedulingPolicy::Priority { ageing_steps } = self.policy {
            for place in self.places.values_mut().filter(|place| place.waits()) {
                place.aged |= place.num_waited_steps >= ageing_steps;
            }
        }
    }

    fn follow(&mut self, decisions: &[Decision]) {
        for decision in decisions {
            match *decision {
                Decision::Admitted { id, row, .. } => self.place(id).row = Some(row),
                Decision::Preempted { id, beneficiary, .. } => {
                    let may = match self.places[&beneficiary].row {
                        _ if self.places[&id].held => true,
                        Some(_) => self.rank(beneficiary) <= self.rank(id),
                        None => self.may_oust(beneficiary, id),
                    };
                    assert!(may, "{id:?} had to go for {beneficiary:?}, which comes later");
                    self.place(id).row = None;
                }
                Decision::Forked { .. } | Decision::Waits { .. } => {}
            }
        }
    }

    fn place(&mut self, id: SequenceId) -> &mut Place {
        self.places.get_mut(&id).expect("decisions name sequences that have not ended")
    }
}
