//! A scheduler, a fake runner, and what is known about each sequence.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use regatta_core::event::{Event, FinishReason};
use regatta_core::plan::{PositionLogprobs, Row, SequencePlan, StepOutput, StepPlan};
use regatta_core::replay::{
    CancelReason, FORMAT_VERSION, Header, Observation, Recorder, Replayer, ScheduleRecord,
};
use regatta_core::runner::{ModelRunner, RunnerLimits, Ticket};
use regatta_core::sampling::SamplingParams;
use regatta_core::scheduler::{NewSequence, Scheduler, SchedulingPolicy, Update};
use regatta_core::sequence::SequenceId;
use regatta_core::testing::{FakeRunner, Reply};

use crate::mirror::Mirror;
use crate::order::Order;
use crate::{Operation, Scenario};

/// What has been heard of a sequence.
struct Heard {
    prompt: Arc<[u32]>,
    sampling: Arc<SamplingParams>,
    token_ids: Vec<u32>,
    logprobs: Vec<PositionLogprobs>,
    prompt_logprobs: Option<Vec<PositionLogprobs>>,
    num_cached_tokens: Option<u32>,
    cache_salt: Option<Arc<str>>,
    cancelled: bool,
    ended: bool,
    holds: bool,
    held: bool,
    /// The tokens that it went on with.
    resumed: Vec<u32>,
}

pub(crate) struct World {
    header: Header,
    recorder: Recorder,
    /// All that was done with the scheduler; whatever is not in it cannot be replayed.
    records: Vec<ScheduleRecord>,
    scheduler: Scheduler,
    runner: FakeRunner,
    reply: Reply,
    limits: RunnerLimits,
    max_model_len: u32,
    has_priorities: bool,
    in_flight: VecDeque<(StepPlan, Ticket)>,
    sequences: BTreeMap<SequenceId, Heard>,
    updates: Vec<Update>,
    order: Order,
    mirror: Mirror,
    num_steps: u64,
    /// The first sequence is part of every step that may have it, so there can be no more steps than tokens, times
    /// the steps in flight at once; and with priorities, again for each arrival that may undo the work of another.
    max_steps: u64,
}

impl World {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let Scenario { limits, ref config, vocab_size, .. } = *scenario;
        let reply = Reply::Hash { vocab_size };
        let header = Header {
            regatta_schedule: FORMAT_VERSION,
            engine: String::new(),
            config: config.clone(),
            limits,
        };
        Self {
            header,
            recorder: Recorder::new([1; 32]),
            records: Vec::new(),
            scheduler: Scheduler::new(config.clone(), limits),
            runner: FakeRunner::new(limits, reply),
            reply,
            limits,
            max_model_len: config.max_model_len,
            order: Order::new(config.policy, config.max_num_partial_prefills),
            mirror: Mirror::default(),
            has_priorities: config.policy != SchedulingPolicy::Fcfs,
            in_flight: VecDeque::new(),
            sequences: BTreeMap::new(),
            updates: Vec::new(),
            num_steps: 0,
            max_steps: 0,
        }
    }

    pub(crate) fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Arrive { shared, own, own_seed, priority, holds, sampling } => {
                let own = (0..*own).map(|i| 1000 * (own_seed + 1) + i);
                let prompt: Vec<u32> = (0..*shared).chain(own).collect();
                let cache_salt = (*own_seed == 3).then(|| "tenant".into());
                self.arrive(prompt, *priority, cache_salt, sampling.clone(), None, *holds);
            }
            Operation::Fork { of, choice, max_tokens } if !self.sequences.is_empty() => {
                let parent = SequenceId(of.index(self.sequences.len()) as u64);
                let Heard { prompt, sampling, holds, resumed, .. } = &self.sequences[&parent];
                let sampling =
                    SamplingParams { choice: *choice, max_tokens: *max_tokens, ..(**sampling).clone() };
                let prompt = match holds {
                    true => prompt.iter().chain(resumed).copied().chain([*choice]).collect(),
                    false => Arc::clone(prompt),
                };
                let cache_salt = self.sequences[&parent].cache_salt.clone();
                let (priority, holds) = (self.order.priority(parent).unwrap_or(0), *holds);
                self.arrive(prompt, priority, cache_salt, sampling, Some(parent), holds);
            }
            Operation::Fork { .. } => {}
            Operation::Resume { which, token_id } => {
                let held: Vec<SequenceId> = self.held().collect();
                if !held.is_empty() {
                    self.resume(held[which.index(held.len())], *token_id);
                }
            }
            Operation::Cancel(index) if !self.sequences.is_empty() => {
                self.cancel(SequenceId(index.index(self.sequences.len()) as u64));
            }
            Operation::Cancel(_) => {}
            Operation::Step => self.step(),
            Operation::Steps(count) => (0..*count).for_each(|_| {
                self.step();
                self.check();
            }),
            Operation::Costs(costs) => {
                self.scheduler.set_preemption_costs(*costs);
                self.record(Observation::Costs(*costs));
            }
            Operation::FailStep => self.fail_step(),
            Operation::Reset => {
                self.scheduler.reset_prefix_cache();
                assert_eq!(self.scheduler.stats().blocks.cached, 0);
                self.record(Observation::Reset);
            }
        }
        self.check();
    }

    /// Runs until nothing is left to do.
    pub(crate) fn finish(&mut self) {
        while self.scheduler.has_work() || !self.in_flight.is_empty() {
            let held: Vec<SequenceId> = self.held().collect();
            held.into_iter().for_each(|id| self.resume(id, 1));
            self.check();
            self.step();
            self.check();
        }
        let stats = self.scheduler.stats();
        assert_eq!(stats.blocks.in_use, 0, "blocks in use when idle");
        assert_eq!(stats.host_blocks.in_use, 0, "host blocks in use when idle");
        assert_eq!((stats.running, stats.waiting, stats.waiting_tokens), (0, 0, 0));
        let num_heard: usize = self.sequences.values().map(|heard| heard.token_ids.len()).sum();
        assert_eq!(stats.generation_tokens, num_heard as u64, "tokens are counted that nobody got");
        assert!(self.sequences.values().all(|s| s.ended), "a sequence without a terminal event");
        self.replay();
    }

    /// From its record, another scheduler plans the same.
    fn replay(&mut self) {
        let mut replayer = Replayer::new(&self.header).unwrap();
        for record in std::mem::take(&mut self.records) {
            replayer.apply(record).unwrap();
        }
        assert_eq!(replayer.stats(), self.scheduler.stats());
    }

    fn record(&mut self, observation: Observation) {
        let record = self.recorder.record(observation);
        self.records.push(record);
    }

    fn heard(&mut self, id: SequenceId) -> &mut Heard {
        self.sequences.get_mut(&id).expect("only known sequences are named")
    }

    fn arrive(
        &mut self,
        prompt: impl Into<Arc<[u32]>>,
        priority: i32,
        cache_salt: Option<Arc<str>>,
        sampling: SamplingParams,
        forks: Option<SequenceId>,
        holds: bool,
    ) {
        let id = SequenceId(self.sequences.len() as u64);
        // What a sequence that holds goes on with is not what it chose, so that nothing can look back.
        let frequency_penalty = if holds { 0.0 } else { sampling.frequency_penalty };
        let sampling = SamplingParams { frequency_penalty, ..sampling };
        let (prompt, sampling): (Arc<[u32]>, _) = (prompt.into(), Arc::new(sampling));
        let new = NewSequence {
            priority,
            forks,
            holds,
            cache_salt: cache_salt.clone(),
            ..NewSequence::new(id, Arc::clone(&prompt), Arc::clone(&sampling))
        };
        let added = Observation::Added(new.clone());
        if self.scheduler.add(new).is_err() {
            let room = (self.max_model_len as usize).saturating_sub(prompt.len());
            let num_tokens = prompt.len() + (sampling.max_tokens as usize).min(room) - 1;
            // Windows may make it fit; without them it surely does.
            let num_blocks = num_tokens.div_ceil(self.limits.block_size as usize);
            let fits = num_blocks * self.limits.kv_groups.as_slice().len() <= self.limits.num_blocks as usize;
            assert!(prompt.is_empty() || room == 0 || !fits, "a sequence that fits was refused");
            return;
        }
        let num_tokens = prompt.len() as u64 + u64::from(sampling.max_tokens);
        self.record(added);
        let num_redone = if self.has_priorities { 2 * u64::from(self.max_model_len) } else { 0 };
        self.max_steps += (num_tokens + num_redone) * u64::from(self.limits.max_in_flight);
        self.order.arrive(id, priority);
        let heard = Heard {
            prompt,
            sampling,
            token_ids: Vec::new(),
            logprobs: Vec::new(),
            prompt_logprobs: None,
            num_cached_tokens: None,
            cache_salt,
            cancelled: false,
            ended: false,
            holds,
            held: false,
            resumed: Vec::new(),
        };
        self.sequences.insert(id, heard);
        self.allow_again();
    }

    fn held(&self) -> impl Iterator<Item = SequenceId> {
        self.sequences.iter().filter(|(_, heard)| heard.held && !heard.ended).map(|(&id, _)| id)
    }

    /// Lets a held sequence go on, or ends it where it has all the tokens that it may have.
    fn resume(&mut self, id: SequenceId, token_id: u32) {
        let heard = &self.sequences[&id];
        let room = self.max_model_len - heard.prompt.len() as u32;
        if heard.resumed.len() as u32 + 1 >= heard.sampling.max_tokens.min(room) {
            return self.cancel(id);
        }
        self.scheduler.resume(id, token_id);
        self.record(Observation::Resumed(id, token_id));
        self.order.resume(id);
        let heard = self.heard(id);
        heard.held = false;
        heard.resumed.push(token_id);
        self.allow_again();
    }

    fn cancel(&mut self, id: SequenceId) {
        self.heard(id).cancelled = true;
        self.scheduler.cancel(id, &mut self.updates);
        self.record(Observation::Cancelled(id, CancelReason::Disconnected));
    }

    /// Where sequences hold, one that goes on may undo the work of all others, once.
    fn allow_again(&mut self) {
        let live = self.sequences.values().filter(|heard| !heard.ended);
        let tokens =
            live.map(|heard| heard.prompt.len() as u64 + u64::from(heard.sampling.max_tokens)).sum::<u64>();
        let holds = self.sequences.values().any(|heard| heard.holds);
        self.max_steps += if holds { 2 * tokens * u64::from(self.limits.max_in_flight) } else { 0 };
    }

    fn step(&mut self) {
        let mut plan = StepPlan::default();
        let may_submit = self.in_flight.len() < self.limits.max_in_flight as usize;
        let is_planned = may_submit && self.scheduler.schedule(&mut plan);
        if may_submit {
            self.order.check_plan(&plan, self.scheduler.decisions(), &self.rows_in_flight());
        }
        if is_planned {
            let in_flight = self.rows_in_flight();
            let stands_for_known = |s: &SequencePlan| s.num_placeholders > 0 && !in_flight.contains(&s.row);
            assert!(!plan.sequences.iter().any(stands_for_known), "a placeholder for a token that is known");
            self.record(Observation::planned(&plan, self.scheduler.decisions()));
            // The runner checks the plan: budget, rows, tokens and blocks.
            let ticket = self.runner.submit(&plan).expect("the fake runner fails by panic only");
            self.in_flight.push_back((plan, ticket));
            self.num_steps += 1;
            assert!(self.num_steps <= self.max_steps, "more steps than tokens: no progress");
            return;
        }
        if may_submit {
            self.record(Observation::Nothing);
        }
        if let Some((plan, ticket)) = self.in_flight.pop_front() {
            let mut output = StepOutput::default();
            self.runner.collect(ticket, &mut output).expect("the fake runner fails by panic only");
            let first = self.updates.len();
            self.scheduler.settle(&plan, &mut output, &mut self.updates);
            self.record(Observation::settled(&output, &self.updates[first..]));
        } else {
            let all_held = self.sequences.values().all(|heard| heard.held || heard.ended);
            assert!(!self.scheduler.has_work() || all_held, "nothing is scheduled while sequences wait");
        }
    }

    fn rows_in_flight(&self) -> BTreeSet<Row> {
        self.in_flight.iter().flat_map(|(plan, _)| plan.sequences.iter().map(|s| s.row)).collect()
    }

    fn fail_step(&mut self) {
        if let Some((plan, ticket)) = self.in_flight.pop_front() {
            self.runner
                .collect(ticket, &mut StepOutput::default())
                .expect("the fake runner fails by panic only");
            self.scheduler.fail(&plan, "on purpose", &mut self.updates);
            self.record(Observation::Failed);
        }
    }

    fn check(&mut self) {
        crate::count_operation();
        for Update { id, event } in std::mem::take(&mut self.updates) {
            self.hear(id, event);
        }
        self.scheduler.audit().unwrap();
        let lingers = |s: &Heard| s.cancelled && !s.ended;
        assert!(
            !self.in_flight.is_empty() || !self.sequences.values().any(lingers),
            "cancelled and not ended"
        );
        let usage = self.scheduler.stats().blocks;
        assert_eq!(usage.free + usage.cached + usage.in_use, usage.total, "{usage:?}");
        self.mirror.follow(&mut self.scheduler, self.limits.block_size);
    }

    fn hear(&mut self, id: SequenceId, event: Event) {
        let heard = self.sequences.get_mut(&id).expect("events name known sequences");
        assert!(!heard.held || event.is_terminal(), "{event:?} of {id:?}, which is held");
        assert!(!heard.ended, "{event:?} after the terminal event of {id:?}");
        heard.ended = event.is_terminal();
        if heard.ended {
            self.order.end(id);
        }
        match event {
            Event::PromptComputed { num_cached_tokens } => {
                assert!(heard.token_ids.is_empty(), "the prompt has passed after a token");
                assert!(heard.num_cached_tokens.replace(num_cached_tokens).is_none(), "it passes twice");
            }
            Event::Token { token_id, logprobs } => {
                heard.token_ids.push(token_id);
                heard.logprobs.extend(logprobs);
                if heard.holds {
                    heard.held = true;
                    self.order.hold(id);
                    self.compare_held(id);
                }
            }
            Event::PromptLogprobs(logprobs) => {
                assert!(heard.token_ids.is_empty(), "prompt log-probabilities after a token");
                assert!(heard.prompt_logprobs.replace(logprobs).is_none(), "prompt log-probabilities twice");
            }
            Event::Finished { reason, num_prompt_tokens, num_generated_tokens, num_cached_tokens } => {
                assert_eq!(num_prompt_tokens as usize, heard.prompt.len());
                let num_kept = if heard.holds { heard.resumed.len() } else { heard.token_ids.len() };
                assert_eq!(num_generated_tokens as usize, num_kept);
                assert!(num_cached_tokens < num_prompt_tokens, "a token must be computed");
                assert!(heard.num_cached_tokens.is_none_or(|told| told == num_cached_tokens));
                self.compare(id, reason);
            }
            Event::Failed { .. } => {}
        }
    }

    /// What was chosen last is what follows the prompt and the tokens that it was resumed with.
    fn compare_held(&self, id: SequenceId) {
        let heard = &self.sequences[&id];
        let tokens: Vec<u32> = heard.prompt.iter().chain(&heard.resumed).copied().collect();
        let sampling = SamplingParams { max_tokens: 1, prompt_logprobs: None, ..(*heard.sampling).clone() };
        let expected = self.reply.expected_of(self.limits.kv_groups, &tokens, &sampling, u32::MAX);
        assert_eq!(heard.token_ids.last(), expected.token_ids.last(), "another token than alone");
        assert_eq!(heard.logprobs.last(), expected.logprobs.last());
    }

    fn compare(&self, id: SequenceId, reason: FinishReason) {
        let heard = &self.sequences[&id];
        let expected =
            self.reply.expected_of(self.limits.kv_groups, &heard.prompt, &heard.sampling, self.max_model_len);
        if reason == FinishReason::Abort {
            assert!(heard.cancelled, "aborted without a reason");
            if heard.holds {
                return;
            }
            assert!(expected.token_ids.starts_with(&heard.token_ids), "other tokens than alone");
            return;
        }
        assert_eq!(heard.token_ids, expected.token_ids, "other tokens than alone");
        assert_eq!(heard.logprobs, expected.logprobs);
        assert_eq!(heard.prompt_logprobs.clone().unwrap_or_default(), expected.prompt_logprobs);
        assert_eq!(heard.prompt_logprobs.is_some(), heard.sampling.prompt_logprobs.is_some());
        assert_eq!(reason, expected.reason);
    }
}
