//! The schedule again, from its record.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;

use serde::Serialize;

use super::{CancelReason, Header, HeaderError, RecordedPlan, RecordedSequence, STOP_TOKEN, ScheduleRecord};
use crate::kv::BlockUsage;
use crate::plan::{PositionLogprobs, Row, SequenceOutput, SequencePlan, StepOutput, StepPlan, TokenLogprob};
use crate::sampling::SamplingParams;
use crate::scheduler::{Decision, NewSequence, Scheduler, SchedulerConfig, SchedulerStats, Update};
use crate::sequence::SequenceId;

/// A record that does not lead to what it says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// Another plan than the recorded one: another version of the scheduler wrote it, or the file was changed.
    #[error("step {step} differs from the recorded one: {difference}")]
    Differs {
        /// The recorded step.
        step: u64,
        /// The first difference.
        difference: String,
    },
    /// The record contradicts itself.
    #[error("{0}; the file is damaged")]
    Contradiction(String),
}

/// A step as it was planned, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayedStep {
    /// Its number, from 1.
    pub step: u64,
    /// Who takes part.
    pub ran: Vec<Share>,
    /// Who was let in, had to wait, or lost its blocks, in the order of deciding.
    pub decisions: Vec<Decision>,
    /// Sequences without a row after planning.
    pub waiting: Vec<SequenceId>,
    /// KV blocks after planning.
    pub blocks: BlockUsage,
}

/// One sequence's share of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    /// The sequence.
    pub id: SequenceId,
    /// Position of the first token computed.
    pub position: u32,
    /// Tokens computed.
    pub num_tokens: u32,
    /// Those of them that the step before it samples, so that they were not known when this one was planned.
    pub num_placeholders: u32,
    /// Whether it runs ahead: an earlier step that computes its tokens is in flight.
    pub runs_ahead: bool,
    /// Prompt length in tokens.
    pub num_prompt_tokens: u32,
    /// Whether a new token follows.
    pub samples: bool,
}

/// A scheduler that is told what another was told.
#[derive(Debug)]
pub struct Replayer {
    scheduler: Scheduler,
    max_in_flight: usize,
    in_flight: VecDeque<StepPlan>,
    last_id: Option<SequenceId>,
    /// Who holds each row, and its prompt length.
    rows: BTreeMap<Row, (SequenceId, u32)>,
    waiting: BTreeSet<SequenceId>,
    /// Those that have not ended.
    live: BTreeSet<SequenceId>,
    /// Those whose prompt's log-probabilities are computed.
    with_prompt_logprobs: BTreeSet<SequenceId>,
    updates: Vec<Update>,
    /// Of sequences that live, or have ended in the last [`Replayer::apply`].
    cancelled: BTreeMap<SequenceId, CancelReason>,
}

impl Replayer {
    /// A scheduler as the recorded one was at its start.
    pub fn new(header: &Header) -> Result<Self, HeaderError> {
        header.check()?;
        Ok(Self {
            // Nobody asks here.
            scheduler: Scheduler::new(
                SchedulerConfig { kv_events: false, ..header.config.clone() },
                header.limits,
            ),
            max_in_flight: header.limits.max_in_flight as usize,
            in_flight: VecDeque::new(),
            last_id: None,
            rows: BTreeMap::new(),
            waiting: BTreeSet::new(),
            live: BTreeSet::new(),
            with_prompt_logprobs: BTreeSet::new(),
            updates: Vec::new(),
            cancelled: BTreeMap::new(),
        })
    }

    /// Does what the record says, and holds what comes of it against the record. A step when one was planned.
    pub fn apply(&mut self, record: ScheduleRecord) -> Result<Option<ReplayedStep>, ReplayError> {
        for Update { id, event } in self.updates.drain(..) {
            if event.is_terminal() {
                self.cancelled.remove(&id);
            }
        }
        let mut step = None;
        match record {
            ScheduleRecord::Add(sequence) => self.add(sequence)?,
            ScheduleRecord::Resume(id, token_id) => self.scheduler.resume(id, token_id),
            ScheduleRecord::Cancel(id, reason) => {
                // Of one that ends with the step under way, the end is heard later.
                if self.live.contains(&id) {
                    self.cancelled.insert(id, reason);
                }
                self.scheduler.cancel(id, &mut self.updates);
            }
            ScheduleRecord::Abort => self.scheduler.abort_all(&mut self.updates),
            ScheduleRecord::Costs(costs) => self.scheduler.set_preemption_costs(costs),
            ScheduleRecord::Reset => self.scheduler.reset_prefix_cache(),
            ScheduleRecord::Plan(recorded) => step = Some(self.plan(&recorded)?),
            ScheduleRecord::Nothing => self.plan_nothing()?,
            ScheduleRecord::Settle(tokens) => self.settle(tokens)?,
            ScheduleRecord::Fail => {
                let plan = self.oldest()?;
                self.scheduler.fail(&plan, "as recorded", &mut self.updates);
            }
            ScheduleRecord::End => {}
        }
        for update in self.updates.iter().filter(|update| update.event.is_terminal()) {
            self.waiting.remove(&update.id);
            self.live.remove(&update.id);
            self.with_prompt_logprobs.remove(&update.id);
        }
        Ok(step)
    }

    /// What happened to sequences in the last [`Replayer::apply`]. Tokens are pseudonyms.
    pub fn updates(&self) -> &[Update] {
        &self.updates
    }

    /// Why a sequence was cancelled of which [`Replayer::updates`] says that it was aborted; `None`: all were.
    pub fn cancel_reason(&self, id: SequenceId) -> Option<CancelReason> {
        self.cancelled.get(&id).copied()
    }

    /// The scheduler's figures now.
    pub fn stats(&self) -> SchedulerStats {
        self.scheduler.stats()
    }

    fn add(&mut self, sequence: RecordedSequence) -> Result<(), ReplayError> {
        let id = sequence.id;
        // A fork may have a place that was kept for it; nobody else has one before those that are there.
        if if sequence.forks.is_some() { self.live.contains(&id) } else { self.last_id >= Some(id) } {
            return Err(contradiction(format!("sequence {} is added out of order", id.0)));
        }
        self.last_id = self.last_id.max(Some(id));
        let sampling = SamplingParams {
            max_tokens: sequence.max_tokens,
            prompt_logprobs: sequence.prompt_logprobs.then_some(0),
            stop_token_ids: vec![STOP_TOKEN],
            ..SamplingParams::default()
        };
        let new = NewSequence {
            priority: sequence.priority,
            forks: sequence.forks,
            holds: sequence.holds,
            ..NewSequence::new(id, sequence.prompt.into(), Arc::new(sampling))
        };
        // Refused then as now: nothing is scheduled for it.
        if self.scheduler.add(new).is_ok() {
            self.waiting.insert(id);
            self.live.insert(id);
            self.with_prompt_logprobs.extend(sequence.prompt_logprobs.then_some(id));
        }
        Ok(())
    }

    fn plan(&mut self, recorded: &RecordedPlan) -> Result<ReplayedStep, ReplayError> {
        let step = recorded.step;
        if self.in_flight.len() >= self.max_in_flight {
            let max = self.max_in_flight;
            return Err(contradiction(format!("step {step} is planned with {max} in flight already")));
        }
        let mut plan = StepPlan::default();
        if !self.scheduler.schedule(&mut plan) {
            let difference = "nothing can be planned".to_owned();
            return Err(ReplayError::Differs { step, difference });
        }
        if let Some(difference) = difference(recorded, &RecordedPlan::from(&plan)) {
            return Err(ReplayError::Differs { step, difference });
        }
        let replayed = self.explain(&plan);
        self.in_flight.push_back(plan);
        Ok(replayed)
    }

    fn plan_nothing(&mut self) -> Result<(), ReplayError> {
        let mut plan = StepPlan::default();
        if !self.scheduler.schedule(&mut plan) {
            return Ok(());
        }
        let difference = format!("nothing was planned, and {} sequences can run", plan.sequences.len());
        Err(ReplayError::Differs { step: plan.step, difference })
    }

    fn settle(&mut self, tokens: Vec<Vec<u32>>) -> Result<(), ReplayError> {
        let plan = self.oldest()?;
        let mut output = StepOutput::default();
        for (index, token_ids) in tokens.into_iter().enumerate() {
            let prompt_logprobs = plan.sequences.get(index).map(|planned| self.prompt_logprobs(planned));
            let prompt_logprobs = prompt_logprobs.unwrap_or_default();
            output.sequences.push(SequenceOutput { token_ids, prompt_logprobs, ..SequenceOutput::default() });
        }
        self.scheduler.settle(&plan, &mut output, &mut self.updates);
        Ok(())
    }

    /// Something in the place of each log-probability of the prompt that this share brought: that they are there is
    /// what counts.
    fn prompt_logprobs(&self, planned: &SequencePlan) -> Vec<PositionLogprobs> {
        let Some(&(id, num_prompt_tokens)) = self.rows.get(&planned.row) else { return Vec::new() };
        if !self.with_prompt_logprobs.contains(&id) {
            return Vec::new();
        }
        let token = TokenLogprob { token_id: STOP_TOKEN, logprob: 0.0, rank: 1 };
        let end = (planned.position + planned.num_tokens + 1).min(num_prompt_tokens);
        (planned.position + 1..end).map(|_| PositionLogprobs { token, top: Vec::new() }).collect()
    }

    fn oldest(&mut self) -> Result<StepPlan, ReplayError> {
        self.in_flight
            .pop_front()
            .ok_or_else(|| contradiction("a step ends that was never planned".to_owned()))
    }

    /// The step just planned, with the names of those in it.
    fn explain(&mut self, plan: &StepPlan) -> ReplayedStep {
        let decisions = self.scheduler.decisions().to_vec();
        for decision in &decisions {
            match *decision {
                Decision::Admitted { id, row, .. } => {
                    let admission = plan.admitted.iter().find(|admission| admission.row == row);
                    let num_prompt_tokens = admission.map_or(0, |admission| admission.num_prompt_tokens);
                    self.rows.insert(row, (id, num_prompt_tokens));
                    self.waiting.remove(&id);
                }
                Decision::Preempted { id, .. } => {
                    self.waiting.insert(id);
                }
                Decision::Forked { .. } | Decision::Waits { .. } => {}
            }
        }
        let in_flight: HashSet<Row> =
            self.in_flight.iter().flat_map(|plan| &plan.sequences).map(|planned| planned.row).collect();
        let share = |planned: &SequencePlan| {
            let SequencePlan { row, position, num_tokens, num_placeholders, samples, .. } = *planned;
            let (id, num_prompt_tokens) = self.rows[&row];
            let runs_ahead = in_flight.contains(&row);
            Share { id, position, num_tokens, num_placeholders, runs_ahead, num_prompt_tokens, samples }
        };
        ReplayedStep {
            step: plan.step,
            ran: plan.sequences.iter().map(share).collect(),
            decisions,
            waiting: self.waiting.iter().copied().collect(),
            blocks: self.scheduler.stats().blocks,
        }
    }
}

fn contradiction(text: String) -> ReplayError {
    ReplayError::Contradiction(text)
}

/// The first field in which the plans differ.
fn difference(recorded: &RecordedPlan, replayed: &RecordedPlan) -> Option<String> {
    if recorded == replayed {
        return None;
    }
    let fields: [(&str, String, String); 8] = [
        ("step", recorded.step.to_string(), replayed.step.to_string()),
        pair("released", &recorded.released, &replayed.released),
        pair("swapped_out", &recorded.swapped_out, &replayed.swapped_out),
        pair("admitted", &recorded.admitted, &replayed.admitted),
        pair("swapped_in", &recorded.swapped_in, &replayed.swapped_in),
        pair("block_copies", &recorded.block_copies, &replayed.block_copies),
        pair("sequences", &recorded.sequences, &replayed.sequences),
        pair("new_blocks", &recorded.new_blocks, &replayed.new_blocks),
    ];
    let (name, was, is) = fields.into_iter().find(|(_, was, is)| was != is)?;
    Some(format!("`{name}` was {was} and is {is}"))
}

/// The first entry in which two lists differ, in words.
fn pair<'a, T: PartialEq + std::fmt::Debug>(name: &'a str, was: &[T], is: &[T]) -> (&'a str, String, String) {
    let index = (0..was.len().max(is.len())).find(|&i| was.get(i) != is.get(i));
    let word = |list: &[T]| match index.map(|i| (i, list.get(i))) {
        None => String::new(),
        Some((i, Some(entry))) => format!("{entry:?} at place {i} of {}", list.len()),
        Some((i, None)) => format!("without a place {i}"),
    };
    (name, word(was), word(is))
}
