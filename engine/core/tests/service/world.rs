//! A scheduler over the fake runner, in which every sequence must get the tokens that it would get alone.

use std::collections::BTreeMap;

use regatta_core::event::{Event, FinishReason};
use regatta_core::kv::KvGroups;
use regatta_core::plan::{PositionLogprobs, Row, StepOutput, StepPlan};
use regatta_core::runner::{ModelRunner, RunnerLimits, Ticket};
use regatta_core::sampling::SamplingParams;
use regatta_core::scheduler::{Decision, NewSequence, Scheduler, SchedulerConfig, Update};
use regatta_core::sequence::SequenceId;
use regatta_core::testing::{FakeRunner, Reply};

pub(crate) const REPLY: Reply = Reply::Hash { vocab_size: 1000 };

pub(crate) const LIMITS: RunnerLimits = RunnerLimits {
    block_size: 4,
    num_blocks: 64,
    kv_groups: KvGroups::FULL,
    num_host_blocks: 0,
    max_num_seqs: 8,
    max_num_batched_tokens: 64,
    max_in_flight: 1,
    feeds_sampled_tokens: false,
};

/// What is known of a sequence.
pub(crate) struct Known {
    pub(crate) new: NewSequence,
    pub(crate) token_ids: Vec<u32>,
    pub(crate) prompt_logprobs: Vec<PositionLogprobs>,
    pub(crate) end: Option<Event>,
}

pub(crate) struct World {
    pub(crate) scheduler: Scheduler,
    runner: FakeRunner,
    /// The latest plan.
    pub(crate) plan: StepPlan,
    pub(crate) sequences: BTreeMap<SequenceId, Known>,
    rows: BTreeMap<Row, SequenceId>,
    num_sequences: u64,
    max_model_len: u32,
    /// Tokens computed in all steps.
    pub(crate) num_computed: usize,
}

impl World {
    pub(crate) fn new(limits: RunnerLimits, config: SchedulerConfig) -> Self {
        Self {
            max_model_len: config.max_model_len,
            scheduler: Scheduler::new(config, limits),
            runner: FakeRunner::new(limits, REPLY),
            plan: StepPlan::default(),
            sequences: BTreeMap::new(),
            rows: BTreeMap::new(),
            num_sequences: 0,
            num_computed: 0,
        }
    }

    pub(crate) fn add(&mut self, prompt: impl IntoIterator<Item = u32>, max_tokens: u32) -> SequenceId {
        self.add_with_priority(prompt, max_tokens, 0)
    }

    pub(crate) fn add_with_priority(
        &mut self,
        prompt: impl IntoIterator<Item = u32>,
        max_tokens: u32,
        priority: i32,
    ) -> SequenceId {
        let seed = self.num_sequences;
        self.add_with(prompt, priority, SamplingParams { max_tokens, seed, ..SamplingParams::default() })
    }

    pub(crate) fn add_with(
        &mut self,
        prompt: impl IntoIterator<Item = u32>,
        priority: i32,
        sampling: SamplingParams,
    ) -> SequenceId {
        let id = SequenceId(self.num_sequences);
        self.num_sequences += 1;
        let prompt = prompt.into_iter().collect();
        let new = NewSequence { priority, ..NewSequence::new(id, prompt, sampling.into()) };
        self.scheduler.add(new.clone()).unwrap();
        let (token_ids, prompt_logprobs) = (Vec::new(), Vec::new());
        self.sequences.insert(id, Known { new, token_ids, prompt_logprobs, end: None });
        id
    }

    pub(crate) fn cancel(&mut self, id: SequenceId) {
        let mut updates = Vec::new();
        self.scheduler.cancel(id, &mut updates);
        self.hear(updates);
    }

    /// Plans a step and submits it.
    pub(crate) fn submit(&mut self) -> Option<(StepPlan, Ticket)> {
        let mut plan = StepPlan::default();
        let is_planned = self.scheduler.schedule(&mut plan);
        for decision in self.scheduler.decisions() {
            if let Decision::Admitted { id, row, .. } = *decision {
                self.rows.insert(row, id);
            }
        }
        if !is_planned {
            return None;
        }
        self.num_computed += plan.token_ids.len();
        let ticket = self.runner.submit(&plan).unwrap();
        self.plan = plan.clone();
        Some((plan, ticket))
    }

    pub(crate) fn settle(&mut self, (plan, ticket): (StepPlan, Ticket)) {
        let (mut output, mut updates) = (StepOutput::default(), Vec::new());
        self.runner.collect(ticket, &mut output).unwrap();
        self.scheduler.settle(&plan, &mut output, &mut updates);
        self.scheduler.audit().unwrap();
        self.hear(updates);
    }

    pub(crate) fn fail(&mut self, (plan, ticket): (StepPlan, Ticket)) {
        let mut updates = Vec::new();
        self.runner.collect(ticket, &mut StepOutput::default()).unwrap();
        self.scheduler.fail(&plan, "on purpose", &mut updates);
        self.scheduler.audit().unwrap();
        self.hear(updates);
    }

    /// Runs a step; `false` when there is nothing to do.
    pub(crate) fn step(&mut self) -> bool {
        let submitted = self.submit();
        let any = submitted.is_some();
        submitted.into_iter().for_each(|step| self.settle(step));
        any
    }

    /// Runs until all have ended, each with the tokens that it would get alone.
    pub(crate) fn finish(&mut self) {
        while self.step() {}
        let stats = self.scheduler.stats();
        assert_eq!(
            (stats.running, stats.waiting, stats.blocks.in_use, stats.host_blocks.in_use),
            (0, 0, 0, 0)
        );
        assert!(self.sequences.values().all(|known| known.end.is_some()), "a sequence has not ended");
    }

    /// Forgets all that have ended.
    pub(crate) fn forget(&mut self) {
        self.sequences.retain(|_, known| known.end.is_none());
    }

    /// Who takes part in the latest plan.
    pub(crate) fn ran(&self) -> Vec<SequenceId> {
        self.plan.sequences.iter().map(|planned| self.rows[&planned.row]).collect()
    }

    pub(crate) fn tokens_of(&self, id: SequenceId) -> &[u32] {
        &self.sequences[&id].token_ids
    }

    fn hear(&mut self, updates: Vec<Update>) {
        for Update { id, event } in updates {
            let known = self.sequences.get_mut(&id).expect("events name known sequences");
            assert!(known.end.is_none(), "{event:?} after the end of {id:?}");
            match &event {
                Event::Token { token_id, .. } => known.token_ids.push(*token_id),
                Event::PromptLogprobs(logprobs) => known.prompt_logprobs.clone_from(logprobs),
                _ => {}
            }
            if event.is_terminal() {
                let expected = REPLY.expected(&known.new.prompt, &known.new.sampling, self.max_model_len);
                let is_whole =
                    matches!(event, Event::Finished { reason, .. } if reason != FinishReason::Abort);
                let num_tokens = if is_whole { expected.token_ids.len() } else { known.token_ids.len() };
                assert_eq!(known.token_ids, expected.token_ids[..num_tokens], "other tokens than alone");
                assert!(!is_whole || known.prompt_logprobs == expected.prompt_logprobs);
                known.end = Some(event);
            }
        }
    }
}
