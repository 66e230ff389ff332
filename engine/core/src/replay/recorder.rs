//! From what the engine does to what is written down.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{CancelReason, Pseudonyms, RecordedPlan, RecordedSequence, STOP_TOKEN, ScheduleRecord};
use crate::event::{Event, FinishReason};
use crate::plan::{Row, StepOutput, StepPlan};
use crate::scheduler::{Decision, NewSequence, PreemptionCosts, Update};
use crate::sequence::SequenceId;

/// What was done with the scheduler, in the order of doing. Cheap to make on the engine thread: tokens are still
/// themselves, and become pseudonyms in [`Recorder::record`].
#[derive(Debug)]
pub enum Observation {
    /// A sequence was added and not refused.
    Added(NewSequence),
    /// A held sequence goes on with this token.
    Resumed(SequenceId, u32),
    /// A sequence was cancelled.
    Cancelled(SequenceId, CancelReason),
    /// All sequences were ended.
    Aborted,
    /// The scheduler was told what preempting costs.
    Costs(PreemptionCosts),
    /// The prefix cache was emptied.
    Reset,
    /// A step was planned; see [`Observation::planned`].
    Planned {
        /// What it does.
        plan: RecordedPlan,
        /// Who got which row.
        admitted: Vec<(Row, SequenceId)>,
    },
    /// A step was asked for and there was none.
    Nothing,
    /// The oldest step was settled; see [`Observation::settled`].
    Settled {
        /// Tokens by the plan's sequences.
        tokens: Vec<Vec<u32>>,
        /// Sequences that ended, with the stop token that ended them.
        ended: Vec<(SequenceId, Option<u32>)>,
    },
    /// The oldest step could not be run.
    Failed,
    /// Nothing more will be seen.
    Ended,
}

impl Observation {
    /// The latest plan and its scheduler's decisions.
    pub fn planned(plan: &StepPlan, decisions: &[Decision]) -> Self {
        let admitted = decisions.iter().filter_map(|decision| match *decision {
            Decision::Admitted { id, row, .. } => Some((row, id)),
            _ => None,
        });
        Self::Planned { plan: plan.into(), admitted: admitted.collect() }
    }

    /// The result of the oldest step in flight, and what settling it led to.
    pub fn settled(output: &StepOutput, updates: &[Update]) -> Self {
        let ended = updates.iter().filter_map(|update| match update.event {
            Event::Finished { reason: FinishReason::Stop { token_id }, .. } => {
                Some((update.id, Some(token_id)))
            }
            Event::Finished { .. } | Event::Failed { .. } => Some((update.id, None)),
            _ => None,
        });
        Self::Settled {
            tokens: output.sequences.iter().map(|sequence| sequence.token_ids.clone()).collect(),
            ended: ended.collect(),
        }
    }
}

/// Keeps what is needed to put pseudonyms in the place of tokens.
#[derive(Debug)]
pub struct Recorder {
    pseudonyms: Pseudonyms,
    /// Sequences that go on with what they are resumed with, not with what they choose.
    holding: HashSet<SequenceId>,
    rows: HashMap<Row, SequenceId>,
    /// Who takes part in the steps in flight, by the plan's order.
    in_flight: VecDeque<Vec<SequenceId>>,
}

impl Recorder {
    /// A recorder whose numbers depend on `key`: random, and kept nowhere else.
    pub fn new(key: [u8; 32]) -> Self {
        Self {
            pseudonyms: Pseudonyms::new(key),
            holding: HashSet::new(),
            rows: HashMap::new(),
            in_flight: VecDeque::new(),
        }
    }

    /// What is to be written.
    pub fn record(&mut self, observation: Observation) -> ScheduleRecord {
        match observation {
            Observation::Added(new) => {
                self.holding.extend(new.holds.then_some(new.id));
                let prompt = self.pseudonyms.prompt(new.id, new.cache_salt.as_deref(), &new.prompt);
                ScheduleRecord::Add(RecordedSequence::new(&new, prompt))
            }
            Observation::Resumed(id, token_id) => {
                ScheduleRecord::Resume(id, self.pseudonyms.next(id, token_id))
            }
            Observation::Cancelled(id, reason) => {
                self.end(id);
                ScheduleRecord::Cancel(id, reason)
            }
            Observation::Aborted => ScheduleRecord::Abort,
            Observation::Costs(costs) => ScheduleRecord::Costs(costs),
            Observation::Planned { plan, admitted } => {
                self.rows.extend(admitted);
                let id = |row| self.rows.get(row).copied().unwrap_or(SequenceId(u64::MAX));
                self.in_flight.push_back(plan.sequences.iter().map(|share| id(&share.0)).collect());
                ScheduleRecord::Plan(plan)
            }
            Observation::Reset => ScheduleRecord::Reset,
            Observation::Nothing => ScheduleRecord::Nothing,
            Observation::Settled { tokens, ended } => ScheduleRecord::Settle(self.settled(tokens, &ended)),
            Observation::Failed => {
                let ids = self.in_flight.pop_front().unwrap_or_default();
                ids.into_iter().for_each(|id| self.end(id));
                ScheduleRecord::Fail
            }
            Observation::Ended => ScheduleRecord::End,
        }
    }

    fn end(&mut self, id: SequenceId) {
        self.pseudonyms.end(id);
        self.holding.remove(&id);
    }

    fn settled(&mut self, tokens: Vec<Vec<u32>>, ended: &[(SequenceId, Option<u32>)]) -> Vec<Vec<u32>> {
        let ids = self.in_flight.pop_front().unwrap_or_default();
        let stops: HashMap<_, _> = ended.iter().copied().collect();
        let mut numbers = |id, tokens: Vec<u32>| -> Vec<u32> {
            let stop = stops.get(&id).copied().flatten();
            let number = |token| match stop == Some(token) || self.holding.contains(&id) {
                true => STOP_TOKEN,
                false => self.pseudonyms.next(id, token),
            };
            tokens.into_iter().map(number).collect()
        };
        let numbers = ids.into_iter().zip(tokens).map(|(id, tokens)| numbers(id, tokens)).collect();
        ended.iter().for_each(|&(id, _)| self.end(id));
        numbers
    }
}
