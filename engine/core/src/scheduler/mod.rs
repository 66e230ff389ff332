//! Decides what each step computes.
//!
//! There are no phases: every sequence has `num_computed_tokens`, and every step lets it catch up with its known
//! tokens, as far as one token budget goes. Chunked prefill is what happens when the budget ends within a prompt.
//!
//! **Order.** A lower priority comes first, then who arrived first; with [`SchedulingPolicy::Fcfs`] all priorities are
//! the same. Those that run and those that wait are each in this order. Who runs comes before who waits, unless the
//! priority of the one that waits is lower. Rows and blocks are taken from the last of those that run, by anyone before
//! them who runs, or by one who waits and comes before them.
//!
//! **Ageing.** A sequence that has waited `ageing_steps` steps, over all its waits, comes before every priority, for
//! good; those like it are in order of arrival. So nobody waits for more than `ageing_steps` steps and for the end of
//! those that run then or have arrived and aged before: nothing else is admitted before it, and what it has got it
//! loses only to one that arrived before it and has aged, too. Ageing takes nothing from those that run.
//!
//! **Running ahead.** A sequence that is in flight is part of the next step, too, where that can be planned: over tokens
//! that are known, as the next chunk of a prompt, or over the one that its last step in flight samples, if the runner
//! [feeds it back](RunnerLimits::feeds_sampled_tokens). Not over a token that surely ends the sequence, nor one that
//! somebody else chooses. Whether another token ends it is known too late: what was computed behind its end is dropped,
//! and it keeps row and blocks until its last step in flight is settled.
//!
//! **Progress.** Where no step is in flight, the first in this order is part of the next one: it may have the rows and
//! blocks of all others, and a sequence that does not fit the whole pool alone is never taken. A step in flight writes to
//! the blocks of those in it, so they can be taken only once it is settled. Whoever comes first waits for that, and none
//! behind it is put into another step meanwhile. So at most as many steps as may be in flight are settled before it has
//! its turn: a full pool empties the pipeline and no more.

mod admission;
mod audit;
mod config;
mod decision;
mod fork;
mod hold;
mod plan_step;
mod preemption;
mod settle;
mod waiting;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub use config::{
    AdmissionError, PreemptionCosts, PreemptionMode, SchedulerConfig, SchedulingPolicy, SequenceLimits,
};
pub use decision::{Decision, Preemption, WaitReason};

use crate::event::{Event, FinishReason};
use crate::kv::{BlockHash, BlockUsage, HostPool, HostUsage, KvCache, KvEvent};
use crate::plan::{BlockSwap, Row};
use crate::runner::RunnerLimits;
use crate::sampling::SamplingParams;
use crate::sequence::{Sequence, SequenceId};
use waiting::Waiting;

/// A sequence to run.
#[derive(Clone, Debug)]
pub struct NewSequence {
    /// Its name, greater than those of all earlier sequences.
    pub id: SequenceId,
    /// Prompt tokens.
    pub prompt: Arc<[u32]>,
    /// How tokens are chosen, and when it ends.
    pub sampling: Arc<SamplingParams>,
    /// With [`SchedulingPolicy::Priority`]: lower goes first.
    pub priority: i32,
    /// A sequence of the same request that arrived before it: what both have in common is computed once. Its row is
    /// looked at when this one is admitted; where it has none, this one is a sequence like any other. With the same
    /// prompt goes the same wish for log-probabilities of it.
    pub forks: Option<SequenceId>,
    /// Whether it pauses after each token until [`Scheduler::resume`]. It ends by [`Scheduler::cancel`] alone, and is to
    /// be resumed with fewer than `max_tokens` tokens.
    pub holds: bool,
    /// Sequences share cached blocks only with those of the same salt; a fork has that of its parent.
    pub cache_salt: Option<Arc<str>>,
}

impl NewSequence {
    /// A sequence that continues `prompt`; everything else is as if nobody had asked for it.
    pub fn new(id: SequenceId, prompt: Arc<[u32]>, sampling: Arc<SamplingParams>) -> Self {
        Self { id, prompt, sampling, priority: 0, forks: None, holds: false, cache_salt: None }
    }
}

/// An event and whose it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// The sequence.
    pub id: SequenceId,
    /// What happened to it.
    pub event: Event,
}

/// Figures of the scheduler. Counters start at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerStats {
    /// Sequences with a row.
    pub running: usize,
    /// Sequences without one.
    pub waiting: usize,
    /// Prompt tokens of those that wait.
    pub waiting_tokens: usize,
    /// Tokens in a KV block.
    pub block_size: u32,
    /// KV blocks by state.
    pub blocks: BlockUsage,
    /// Steps planned.
    pub steps: u64,
    /// Prompt tokens of sequences that have their first token, each sequence counted once.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub generation_tokens: u64,
    /// Sequences that wait and have their KV in host memory.
    pub swapped: usize,
    /// Host blocks by state.
    pub host_blocks: HostUsage,
    /// Sequences that lost their KV to others and compute it again.
    pub recompute_preemptions: u64,
    /// Sequences whose KV went to host memory for others.
    pub swap_preemptions: u64,
    /// Prompt tokens that were looked up in the prefix cache, each sequence once.
    pub prefix_cache_queries: u64,
    /// Those of them that were found.
    pub prefix_cache_hits: u64,
}

/// See the module's page.
#[derive(Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    limits: SequenceLimits,
    /// See [`RunnerLimits::feeds_sampled_tokens`].
    feeds_sampled_tokens: bool,
    kv: KvCache,
    /// Counts how often all cached content was forgotten: what was computed before is not made findable again.
    kv_epoch: u64,
    /// Parent of the first block of every sequence.
    root_hash: BlockHash,
    /// Sequences by row.
    rows: Vec<Option<Sequence>>,
    free_rows: Vec<Row>,
    /// Occupied rows in order of rank, but for those whose sequences are held or have ended; may also name rows whose
    /// sequences left, were held or ended since the last step.
    running: Vec<Row>,
    waiting: Waiting,
    /// Rows of held sequences.
    held: Vec<Row>,
    /// Held sequences that lost their rows; in order, so that a schedule repeats.
    parked: BTreeMap<SequenceId, Sequence>,
    /// During a plan: rows whose blocks it copies.
    copied: Vec<Row>,
    /// Rows emptied since the last plan.
    released: Vec<Row>,
    host: HostPool,
    /// Copies to host memory that the next plan orders.
    swapped_out: Vec<BlockSwap>,
    costs: Option<PreemptionCosts>,
    /// Number of the last step that was settled or failed.
    last_settled: u64,
    /// Rows of those that have not ended.
    row_of: HashMap<SequenceId, Row>,
    /// Rows of those that have.
    num_ended: usize,
    /// During a plan: the prompt blocks that running sequences complete next, and whose they are.
    next_blocks: HashMap<BlockHash, SequenceId>,
    /// Of the latest plan.
    decisions: Vec<Decision>,
    counters: SchedulerStats,
}

impl Scheduler {
    /// A scheduler for a runner with these limits.
    pub fn new(config: SchedulerConfig, runner: RunnerLimits) -> Self {
        let limits = SequenceLimits::new(&config, &runner);
        let num_rows = config.max_num_seqs.min(runner.max_num_seqs).max(1);
        let budget = config.max_num_batched_tokens.min(runner.max_num_batched_tokens).max(1);
        Self {
            limits,
            feeds_sampled_tokens: runner.feeds_sampled_tokens,
            kv_epoch: 0,
            root_hash: BlockHash::root(&config.model_identity),
            kv: KvCache::new(&runner, num_rows, limits.max_step_tokens, &config),
            rows: (0..num_rows).map(|_| None).collect(),
            free_rows: (0..num_rows).rev().map(Row).collect(),
            running: Vec::with_capacity(num_rows as usize),
            waiting: Waiting::new(match config.policy {
                SchedulingPolicy::Fcfs => None,
                SchedulingPolicy::Priority { ageing_steps } => Some(u64::from(ageing_steps)),
            }),
            held: Vec::new(),
            parked: BTreeMap::new(),
            copied: Vec::new(),
            released: Vec::new(),
            host: HostPool::new(runner.num_host_blocks),
            swapped_out: Vec::new(),
            costs: None,
            last_settled: 0,
            row_of: HashMap::new(),
            num_ended: 0,
            next_blocks: HashMap::new(),
            decisions: Vec::new(),
            counters: SchedulerStats { block_size: runner.block_size, ..SchedulerStats::default() },
            config: SchedulerConfig { max_num_seqs: num_rows, max_num_batched_tokens: budget, ..config },
        }
    }

    /// What every sequence is checked against.
    pub fn limits(&self) -> SequenceLimits {
        self.limits
    }

    /// Queues a sequence. `max_tokens` counts only as far as [`SequenceLimits::check`] allows.
    pub fn add(&mut self, new: NewSequence) -> Result<(), AdmissionError> {
        let max_tokens = self.limits.check(new.prompt.len(), new.sampling.max_tokens)?;
        let priority = match self.config.policy {
            SchedulingPolicy::Fcfs => 0,
            SchedulingPolicy::Priority { .. } => new.priority,
        };
        let new = NewSequence { priority, ..new };
        let sequence = Sequence::new(new, max_tokens, self.root_hash);
        self.waiting.push(sequence, self.counters.steps);
        Ok(())
    }

    /// What [`PreemptionMode::ByCost`] decides by from now on.
    pub fn set_preemption_costs(&mut self, costs: PreemptionCosts) {
        self.costs = Some(costs);
    }

    /// Ends a sequence that nobody wants any more, in [`FinishReason::Abort`]: at once, or when the first of its steps in
    /// flight is settled. Unknown and ended sequences are ignored.
    pub fn cancel(&mut self, id: SequenceId, updates: &mut Vec<Update>) {
        let without_row = self.waiting.remove(id, self.counters.steps).or_else(|| self.parked.remove(&id));
        if let Some(sequence) = without_row {
            if let Some(swapped) = &sequence.swapped {
                self.host.give_back(&swapped.tables);
            }
            updates.push(Update { id, event: sequence.finished(FinishReason::Abort) });
        } else if let Some(&row) = self.row_of.get(&id) {
            let sequence = self.sequence_mut(row);
            if sequence.in_flight() {
                sequence.cancelled = true;
            } else {
                self.finish(row, FinishReason::Abort, updates);
            }
        }
    }

    /// Ends all sequences in [`FinishReason::Abort`]. No step may be in flight.
    pub fn abort_all(&mut self, updates: &mut Vec<Update>) {
        let ids: Vec<SequenceId> = self
            .row_of
            .keys()
            .copied()
            .chain(self.waiting.ids())
            .chain(self.parked.keys().copied())
            .collect();
        for id in ids {
            self.cancel(id, updates);
        }
    }

    /// Makes all cached content unfindable. What sequences that run have computed so far, and what they go on to
    /// compute from it, is not to be found either.
    pub fn reset_prefix_cache(&mut self) {
        self.kv.forget_all();
        self.kv_epoch += 1;
    }

    /// What has changed in the prefix cache since the last call, in order, put in the place of what is in `events`.
    /// Nothing without [`SchedulerConfig::kv_events`].
    pub fn take_kv_events(&mut self, events: &mut Vec<KvEvent>) {
        events.clear();
        self.kv.take_events(events);
    }

    /// What the prefix cache holds: blocks by hash and group of layers, in no order.
    pub fn cached_content(&self) -> impl Iterator<Item = (BlockHash, u8)> {
        self.kv.findable()
    }

    /// Whether any sequence has not ended, or has and is part of a step in flight.
    pub fn has_work(&self) -> bool {
        let has_rows = !self.row_of.is_empty() || self.num_ended > 0;
        has_rows || !self.waiting.is_empty() || !self.parked.is_empty()
    }

    /// The figures now.
    pub fn stats(&self) -> SchedulerStats {
        SchedulerStats {
            running: self.row_of.len(),
            waiting: self.waiting.len() + self.parked.len(),
            waiting_tokens: self.waiting.num_prompt_tokens(),
            blocks: self.kv.usage(),
            swapped: self.host.num_holders(),
            host_blocks: self.host.usage(),
            ..self.counters
        }
    }

    /// Why the latest plan is what it is, in the order of deciding.
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    fn sequence(&self, row: Row) -> &Sequence {
        self.rows[row.0 as usize]
            .as_ref()
            .expect("rows named by `running`, `row_of` and plans in flight are occupied")
    }

    fn sequence_mut(&mut self, row: Row) -> &mut Sequence {
        self.rows[row.0 as usize]
            .as_mut()
            .expect("rows named by `running`, `row_of` and plans in flight are occupied")
    }

    /// Takes the sequence out of its row and gives its blocks back.
    fn vacate(&mut self, row: Row) -> Sequence {
        let sequence = self.rows[row.0 as usize].take().expect("only occupied rows are vacated");
        self.kv.release(row);
        self.row_of.remove(&sequence.id);
        self.held.retain(|&other| other != row);
        self.released.push(row);
        self.free_rows.push(row);
        sequence
    }

    /// Puts an occupied row among those that run; no other of those may be empty.
    fn run(&mut self, row: Row) {
        let rank = self.sequence(row).rank();
        let place = self.running.partition_point(|&other| self.sequence(other).rank() < rank);
        self.running.insert(place, row);
    }

    fn finish(&mut self, row: Row, reason: FinishReason, updates: &mut Vec<Update>) {
        let event = self.sequence(row).finished(reason);
        self.end(row, event, updates);
    }

    /// Ends the sequence of a row in `event`. Row and blocks are free at once, or when the last of its steps in flight is
    /// settled: until then they are written to.
    fn end(&mut self, row: Row, event: Event, updates: &mut Vec<Update>) {
        let sequence = self.sequence_mut(row);
        let id = sequence.id;
        updates.push(Update { id, event });
        if sequence.in_flight() {
            sequence.ended = true;
            self.row_of.remove(&id);
            self.num_ended += 1;
        } else {
            self.vacate(row);
        }
    }
}
