//! What the scheduler does in particular cases.

use std::collections::BTreeMap;
use std::sync::Arc;

use regatta_core::event::Event;
use regatta_core::kv::KvGroups;
use regatta_core::plan::{Row, StepOutput, StepPlan};
use regatta_core::runner::{ModelRunner, RunnerLimits};
use regatta_core::sampling::SamplingParams;
use regatta_core::scheduler::{
    Decision, NewSequence, Preemption, Scheduler, SchedulerConfig, Update, WaitReason,
};
use regatta_core::sequence::SequenceId;
use regatta_core::testing::{FakeRunner, Reply};

const REPLY: Reply = Reply::Hash { vocab_size: 1000 };

struct World {
    scheduler: Scheduler,
    runner: FakeRunner,
    plan: StepPlan,
    updates: Vec<Update>,
    num_sequences: u64,
}

impl World {
    fn new(num_blocks: u32, budget: u32, config: SchedulerConfig) -> Self {
        let limits = RunnerLimits {
            block_size: 4,
            num_blocks,
            kv_groups: KvGroups::FULL,
            num_host_blocks: 0,
            max_num_seqs: 8,
            max_num_batched_tokens: budget,
            max_in_flight: 1,
            feeds_sampled_tokens: false,
        };
        Self {
            scheduler: Scheduler::new(config, limits),
            runner: FakeRunner::new(limits, REPLY),
            plan: StepPlan::default(),
            updates: Vec::new(),
            num_sequences: 0,
        }
    }

    fn add(&mut self, prompt: impl IntoIterator<Item = u32>, max_tokens: u32) -> SequenceId {
        let id = SequenceId(self.num_sequences);
        self.num_sequences += 1;
        let sampling = Arc::new(SamplingParams { max_tokens, ..SamplingParams::default() });
        self.scheduler.add(NewSequence::new(id, prompt.into_iter().collect(), sampling)).unwrap();
        id
    }

    /// Another choice of `of`, for the same prompt.
    fn fork(&mut self, of: SequenceId, prompt: &Arc<[u32]>, max_tokens: u32) -> SequenceId {
        let id = SequenceId(self.num_sequences);
        self.num_sequences += 1;
        let sampling = SamplingParams { max_tokens, choice: id.0 as u32, ..SamplingParams::default() };
        let new =
            NewSequence { forks: Some(of), ..NewSequence::new(id, Arc::clone(prompt), sampling.into()) };
        self.scheduler.add(new).unwrap();
        id
    }

    /// Runs a step; `false` when there is nothing to do.
    fn step(&mut self) -> bool {
        if !self.scheduler.schedule(&mut self.plan) {
            return false;
        }
        let mut output = StepOutput::default();
        let ticket = self.runner.submit(&self.plan).unwrap();
        self.runner.collect(ticket, &mut output).unwrap();
        self.scheduler.settle(&self.plan, &mut output, &mut self.updates);
        self.scheduler.audit().unwrap();
        true
    }

    fn num_tokens(&self) -> Vec<u32> {
        self.plan.sequences.iter().map(|s| s.num_tokens).collect()
    }

    fn num_cached_tokens(&self, of: SequenceId) -> u32 {
        let cached = |update: &Update| match update.event {
            Event::Finished { num_cached_tokens, .. } if update.id == of => Some(num_cached_tokens),
            _ => None,
        };
        self.updates.iter().find_map(cached).expect("the sequence has finished")
    }
}

#[test]
fn a_long_prompt_is_cut_to_the_budget_and_decodes_go_first() {
    let mut world = World::new(64, 10, SchedulerConfig::default());
    world.add(0..3, 8);
    world.step();
    world.add(0..25, 8);
    let mut shares = Vec::new();
    for _ in 0..4 {
        world.step();
        shares.push(world.num_tokens());
    }
    assert_eq!(shares, [[1, 9], [1, 9], [1, 7], [1, 1]]);
}

#[test]
fn a_threshold_leaves_budget_for_a_short_prompt_behind_a_long_one() {
    let config = SchedulerConfig { long_prefill_token_threshold: Some(6), ..SchedulerConfig::default() };
    let mut world = World::new(64, 10, config);
    world.add(0..25, 8);
    world.add(100..104, 8);
    world.step();
    assert_eq!(world.num_tokens(), [6, 4]);
}

#[test]
fn admission_keeps_room_for_prompts_that_are_still_being_computed() {
    let config = SchedulerConfig { long_prefill_token_threshold: Some(4), ..SchedulerConfig::default() };
    let mut world = World::new(10, 8, config);
    world.add(0..32, 1);
    world.add(100..112, 20);
    while world.step() {}
    assert_eq!(world.scheduler.stats().recompute_preemptions, 0);
}

#[test]
fn a_newcomer_leaves_a_block_for_each_that_runs() {
    let mut world = World::new(6, 64, SchedulerConfig::default());
    world.add(0..8, 5);
    world.add(100..116, 1);
    world.step();
    assert_eq!(world.num_tokens(), [8]);
    while world.step() {}
    assert_eq!(world.scheduler.stats().recompute_preemptions, 0);
}

#[test]
fn the_latest_arrival_makes_room_and_comes_back() {
    let mut world = World::new(6, 64, SchedulerConfig::default());
    let first = world.add(0..4, 17);
    let second = world.add(100..104, 17);
    while world.step() {}
    assert!(world.scheduler.stats().recompute_preemptions > 0);
    let ends = world.updates.iter().filter(|update| update.event.is_terminal()).map(|update| update.id);
    assert_eq!(ends.collect::<Vec<_>>(), [first, second]);
}

#[test]
fn a_common_beginning_is_computed_once_and_the_tails_are_given_up_first() {
    let mut world = World::new(8, 64, SchedulerConfig::default());
    let cold = world.add(0..13, 1);
    while world.step() {}
    assert_eq!(world.scheduler.stats().blocks.cached, 3);
    let warm = world.add(0..13, 1);
    while world.step() {}
    assert_eq!((world.num_cached_tokens(cold), world.num_cached_tokens(warm)), (0, 12));

    // Six of the eight blocks go to another prompt: five are free, so one cached block must go.
    world.add(100..124, 1);
    while world.step() {}
    let beginning = world.add(0..13, 1);
    while world.step() {}
    assert_eq!(world.num_cached_tokens(beginning), 8);
}

#[test]
fn sequences_that_arrive_together_compute_their_common_beginning_once() {
    let mut world = World::new(200, 16, SchedulerConfig::default());
    for own in 0..5 {
        world.add((0..40).chain([1000 + own, 2000]), 3);
    }
    let mut num_computed = 0;
    while world.step() {
        num_computed += world.plan.token_ids.len();
    }
    // The beginning once, two own prompt tokens and two generated ones for each; the last needs no KV.
    assert_eq!(num_computed, 40 + 5 * (2 + 2));
}

#[test]
fn another_model_does_not_find_the_blocks_of_this_one() {
    use regatta_core::kv::BlockHash;
    let hash = |identity| BlockHash::root(identity).child([1, 2, 3, 4]);
    assert_ne!(hash("a"), hash("b"));
    assert_ne!(hash("a"), BlockHash::root("a").child([1, 2, 3, 5]));
    assert_ne!(hash("a").child([1]), BlockHash::root("a").child([1]));
}

#[test]
fn a_block_hash_is_the_same_on_every_machine() {
    use regatta_core::kv::BlockHash;
    let hash = BlockHash::root("model").child([1, 2, 3]);
    let hex: String = hash.0.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "d119825b69aac7605e288abab65736ec898ea4358352e9716563c2c2e134fe7f");
}

/// Why the next in line did not get a row in the latest step.
fn wait_reason(world: &World, of: SequenceId) -> Option<WaitReason> {
    world.scheduler.decisions().iter().find_map(|decision| match *decision {
        Decision::Waits { id, because } if id == of => Some(because),
        _ => None,
    })
}

#[test]
fn a_step_says_what_those_that_wait_lack() {
    let mut budget = World::new(64, 8, SchedulerConfig::default());
    budget.add(0..20, 4);
    let second = budget.add(100..120, 4);
    budget.step();
    assert_eq!(wait_reason(&budget, second), Some(WaitReason::NoBudget));

    let config = SchedulerConfig { max_num_seqs: 1, ..SchedulerConfig::default() };
    let mut rows = World::new(64, 64, config);
    let first = rows.add(0..8, 4);
    let second = rows.add(100..108, 4);
    rows.step();
    let admitted = Decision::Admitted { id: first, row: Row(0), num_cached_tokens: 0 };
    assert!(rows.scheduler.decisions().contains(&admitted), "{:?}", rows.scheduler.decisions());
    assert_eq!(wait_reason(&rows, second), Some(WaitReason::NoRow));

    let mut blocks = World::new(6, 64, SchedulerConfig::default());
    blocks.add(0..8, 5);
    let second = blocks.add(100..116, 1);
    blocks.step();
    let reason = Some(WaitReason::NoBlocks { num_needed: 5, num_available: 4 });
    assert_eq!(wait_reason(&blocks, second), reason);

    let mut prefix = World::new(64, 64, SchedulerConfig::default());
    let leader = prefix.add(0..16, 4);
    let second = prefix.add(0..20, 4);
    prefix.step();
    assert_eq!(wait_reason(&prefix, second), Some(WaitReason::FollowsPrefix { leader }));
}

#[test]
fn a_step_says_who_lost_its_blocks_to_whom() {
    let mut world = World::new(6, 64, SchedulerConfig::default());
    let first = world.add(0..4, 17);
    let second = world.add(100..104, 17);
    let mut preempted = Vec::new();
    while world.step() {
        let decisions = world.scheduler.decisions().iter();
        preempted.extend(decisions.filter(|d| matches!(d, Decision::Preempted { .. })).copied());
    }
    assert_eq!(
        preempted[0],
        Decision::Preempted { id: second, beneficiary: first, how: Preemption::Recompute }
    );
}

#[test]
fn forks_share_full_blocks_copy_the_partial_one_and_compute_the_last_prompt_token_alone() {
    for enable_prefix_caching in [true, false] {
        let config = SchedulerConfig { enable_prefix_caching, ..SchedulerConfig::default() };
        let mut world = World::new(64, 8, config);
        let prompt: Arc<[u32]> = (0..15).collect();
        let leader = world.add(prompt.iter().copied(), 6);
        world.fork(leader, &prompt, 6);
        world.fork(leader, &prompt, 6);
        // Two chunks of the leader, for which its forks wait.
        world.step();
        world.step();
        assert!(world.plan.admitted.is_empty() && world.scheduler.stats().waiting == 2);
        world.step();
        assert_eq!((world.num_tokens(), world.plan.admitted.len()), (vec![1, 1, 1], 2));
        let forked = |id| Decision::Forked { id: SequenceId(id), parent: leader, num_tokens: 14 };
        assert!([1, 2].iter().all(|&id| world.scheduler.decisions().contains(&forked(id))));
        let copies = &world.plan.block_copies;
        assert!(copies.len() == 2 && copies[0].from == copies[1].from && copies[0].to != copies[1].to);
        // Three blocks in common and one of each.
        assert_eq!(world.scheduler.stats().blocks.in_use, 3 + 3);
        while world.step() {}
        assert_eq!(world.scheduler.stats().blocks.in_use, 0);
        assert_eq!(world.scheduler.stats().recompute_preemptions, 0);
    }
}

#[test]
fn forks_are_told_the_log_probabilities_of_the_prompt_that_their_parent_computes() {
    let mut world = World::new(64, 8, SchedulerConfig::default());
    let prompt: Arc<[u32]> = (0..15).collect();
    let sampling = SamplingParams { max_tokens: 3, prompt_logprobs: Some(1), ..SamplingParams::default() };
    for choice in 0..3 {
        let sampling = Arc::new(SamplingParams { choice, ..sampling.clone() });
        let forks = (choice > 0).then_some(SequenceId(0));
        let new = NewSequence::new(SequenceId(choice.into()), Arc::clone(&prompt), sampling);
        world.scheduler.add(NewSequence { forks, ..new }).unwrap();
    }
    let mut num_computed = 0;
    while world.step() {
        num_computed += world.num_tokens().iter().sum::<u32>();
    }
    // The prompt, its last token again for each fork, and two of the three tokens of each.
    assert_eq!(num_computed, 15 + 2 + 3 * 2);
    let expected = REPLY.expected(&prompt, &sampling, 2048).prompt_logprobs;
    let told = world.updates.iter().filter_map(|update| match &update.event {
        Event::PromptLogprobs(logprobs) => Some((update.id, logprobs)),
        _ => None,
    });
    let told: BTreeMap<_, _> = told.collect();
    assert_eq!(told.len(), 3);
    assert!(told.values().all(|&logprobs| *logprobs == expected));
}

#[test]
fn a_fork_at_the_end_of_a_block_copies_nothing() {
    let mut world = World::new(64, 64, SchedulerConfig::default());
    let prompt: Arc<[u32]> = (0..13).collect();
    let leader = world.add(prompt.iter().copied(), 6);
    world.fork(leader, &prompt, 6);
    world.step();
    world.step();
    assert_eq!((world.num_tokens(), world.plan.block_copies.len()), (vec![1, 1], 0));
}

#[test]
fn a_fork_whose_parent_is_gone_is_a_sequence_like_any_other() {
    let config = SchedulerConfig { enable_prefix_caching: false, ..SchedulerConfig::default() };
    let mut world = World::new(64, 64, config);
    let prompt: Arc<[u32]> = (0..13).collect();
    let leader = world.add(prompt.iter().copied(), 1);
    let fork = world.fork(leader, &prompt, 2);
    world.step();
    world.step();
    assert_eq!(world.num_tokens(), [13]);
    while world.step() {}
    assert_eq!(world.num_cached_tokens(fork), 0);
}
