//! What becomes of KV blocks in particular cases: windows, groups of layers, the prefix cache.

use std::collections::BTreeMap;
use std::sync::Arc;

use regatta_core::event::Event;
use regatta_core::kv::{KvEvent, KvGroup, KvGroups};
use regatta_core::plan::{BlockId, StepOutput, StepPlan};
use regatta_core::runner::{ModelRunner, RunnerLimits};
use regatta_core::sampling::SamplingParams;
use regatta_core::scheduler::{NewSequence, Scheduler, SchedulerConfig, Update};
use regatta_core::sequence::SequenceId;
use regatta_core::testing::{FakeRunner, Reply};

const BLOCK_SIZE: u32 = 4;
const REPLY: Reply = Reply::Hash { vocab_size: 1000 };

fn window(window: u32) -> KvGroup {
    KvGroup::SlidingWindow { window }
}

/// What a sequence got.
#[derive(Clone, Debug, Default, PartialEq)]
struct Answer {
    token_ids: Vec<u32>,
    num_cached_tokens: u32,
    reason: String,
}

struct World {
    scheduler: Scheduler,
    runner: FakeRunner,
    groups: KvGroups,
    plan: StepPlan,
    answers: BTreeMap<SequenceId, Answer>,
    num_sequences: u64,
    most_in_use: u32,
}

impl World {
    fn new(num_blocks: u32, budget: u32, groups: &[KvGroup]) -> Self {
        let kv_groups = KvGroups::new(groups).unwrap();
        let limits = RunnerLimits {
            block_size: BLOCK_SIZE,
            num_blocks,
            kv_groups,
            num_host_blocks: 0,
            max_num_seqs: 8,
            max_num_batched_tokens: budget,
            max_in_flight: 1,
            feeds_sampled_tokens: false,
        };
        Self {
            scheduler: Scheduler::new(
                SchedulerConfig { kv_events: true, ..SchedulerConfig::default() },
                limits,
            ),
            runner: FakeRunner::new(limits, REPLY),
            groups: kv_groups,
            plan: StepPlan::default(),
            answers: BTreeMap::new(),
            num_sequences: 0,
            most_in_use: 0,
        }
    }

    fn add(&mut self, prompt: impl IntoIterator<Item = u32>, max_tokens: u32) -> SequenceId {
        self.add_salted(prompt, max_tokens, None)
    }

    fn add_salted(
        &mut self,
        prompt: impl IntoIterator<Item = u32>,
        max_tokens: u32,
        cache_salt: Option<&str>,
    ) -> SequenceId {
        let id = SequenceId(self.num_sequences);
        self.num_sequences += 1;
        let sampling = Arc::new(SamplingParams { max_tokens, ..SamplingParams::default() });
        let new = NewSequence::new(id, prompt.into_iter().collect(), sampling);
        let cache_salt = cache_salt.map(Arc::from);
        self.scheduler.add(NewSequence { cache_salt, ..new }).unwrap();
        id
    }

    /// Runs a step; `false` when there is nothing to do. The runner panics on a plan that reads or writes where it
    /// must not.
    fn step(&mut self) -> bool {
        if !self.scheduler.schedule(&mut self.plan) {
            return false;
        }
        let (mut output, mut updates) = (StepOutput::default(), Vec::new());
        self.most_in_use = self.most_in_use.max(self.scheduler.stats().blocks.in_use);
        let ticket = self.runner.submit(&self.plan).unwrap();
        self.runner.collect(ticket, &mut output).unwrap();
        self.scheduler.settle(&self.plan, &mut output, &mut updates);
        self.scheduler.audit().unwrap();
        for Update { id, event } in updates {
            let answer = self.answers.entry(id).or_default();
            match event {
                Event::PromptComputed { num_cached_tokens } => answer.num_cached_tokens = num_cached_tokens,
                Event::Token { token_id, .. } => answer.token_ids.push(token_id),
                Event::Finished { reason, num_cached_tokens, .. } => {
                    assert_eq!(answer.num_cached_tokens, num_cached_tokens);
                    answer.reason = format!("{reason:?}");
                }
                other => panic!("{other:?}"),
            }
        }
        true
    }

    /// Runs a prompt to its end, and checks that it gets the tokens that it would get alone and cold.
    fn run(&mut self, prompt: impl IntoIterator<Item = u32> + Clone, max_tokens: u32) -> Answer {
        let id = self.add(prompt.clone(), max_tokens);
        while self.step() {}
        let prompt: Vec<u32> = prompt.into_iter().collect();
        let sampling = SamplingParams { max_tokens, ..SamplingParams::default() };
        let expected = REPLY.expected_of(self.groups, &prompt, &sampling, 2048);
        assert_eq!(self.answers[&id].token_ids, expected.token_ids);
        self.answers[&id].clone()
    }
}

#[test]
fn blocks_outside_the_window_are_given_back_during_chunked_prefill_and_decode() {
    // A window of 9 and a chunk of 6 touch five blocks at most wherever they start, and four from where they do here.
    let mut world = World::new(5, 6, &[window(9)]);
    let (prompt, max_tokens) = if cfg!(miri) { (0..50, 20) } else { (0..200, 100) };
    world.run(prompt, max_tokens);
    assert_eq!(world.most_in_use, 4);
}

#[test]
fn a_group_of_full_attention_beside_a_window_keeps_all_its_blocks() {
    let mut world = World::new(25 + 5, 6, &[KvGroup::Full, window(9)]);
    world.run(0..80, 20);
    assert!((25..=25 + 5).contains(&world.most_in_use), "{}", world.most_in_use);
}

#[test]
fn new_blocks_are_planned_group_by_group() {
    let mut world = World::new(40, 8, &[KvGroup::Full, window(4)]);
    world.add(0..8, 1);
    world.step();
    assert_eq!(world.plan.sequences[0].num_new_blocks, 4);
    assert_eq!(world.plan.new_blocks, [0, 1, 2, 3].map(BlockId));
    // What the window does not see of a hit is no block at all.
    world.add(0..17, 1);
    world.step();
    assert_eq!(world.plan.sequences[0].position, 8);
    let seen_by_window = [BlockId::NONE, BlockId(3)];
    assert_eq!(world.plan.new_blocks[4..6], seen_by_window);
}

#[test]
fn a_hit_in_a_window_needs_only_the_last_windows_blocks() {
    let mut world = World::new(12, 8, &[window(6)]);
    world.run(0..41, 1);
    // Others take all blocks but those that were given back last.
    world.run(1000..1033, 1);
    assert!(world.scheduler.stats().blocks.cached > 0);
    assert_eq!(world.run(0..41, 1).num_cached_tokens, 40);
}

#[test]
fn a_hit_must_hold_for_every_group() {
    let mut world = World::new(24, 64, &[KvGroup::Full, window(6)]);
    world.run(0..41, 1);
    assert_eq!(world.run(0..41, 1).num_cached_tokens, 40);
    // The window's older blocks are the first to go, so a shorter beginning is found in one group only.
    world.run(1000..1013, 1);
    assert_eq!(world.run(0..41, 1).num_cached_tokens, 40);
    assert_eq!(world.run(0..22, 1).num_cached_tokens, 0);
}

#[test]
fn the_first_answer_to_a_prompt_and_all_later_ones_are_the_same() {
    for groups in [&[KvGroup::Full][..], &[window(7)], &[KvGroup::Full, window(7)]] {
        let mut world = World::new(64, 16, groups);
        let (prompt, max_tokens) = if cfg!(miri) { (0..18, 4) } else { (0..50, 20) };
        let cold = world.run(prompt.clone(), max_tokens);
        let warm = world.run(prompt.clone(), max_tokens);
        assert_eq!((cold.num_cached_tokens, warm.num_cached_tokens), (0, prompt.end - 2));
        assert_eq!(cold.token_ids, warm.token_ids);
    }
}

#[test]
fn sequences_that_share_a_beginning_at_once_never_write_to_what_they_share() {
    for groups in [&[KvGroup::Full][..], &[window(7)], &[KvGroup::Full, window(7)]] {
        let len = if cfg!(miri) { 16 } else { 40 };
        let mut world = World::new(5 * len, 64, groups);
        world.run(0..len, 1);
        // A prompt that is all hit, one that leaves within a block, and one that goes on.
        let ids =
            [0..len, 0..len - 2, 0..len + 7, 0..len].map(|prompt| (world.add(prompt.clone(), 9), prompt));
        while world.step() {}
        for (id, prompt) in ids {
            let prompt: Vec<u32> = prompt.collect();
            let sampling = SamplingParams { max_tokens: 9, ..SamplingParams::default() };
            let expected = REPLY.expected_of(world.groups, &prompt, &sampling, 2048);
            assert_eq!(world.answers[&id].token_ids, expected.token_ids);
            assert!(world.answers[&id].num_cached_tokens >= len - 4);
        }
    }
}

#[test]
fn a_window_makes_room_for_sequences_longer_than_the_pool() {
    let world = World::new(5, 6, &[window(9)]);
    assert_eq!(world.scheduler.limits().check(1500, 100), Ok(100));
    let full = World::new(5, 6, &[KvGroup::Full, window(9)]);
    let error = full.scheduler.limits().check(1500, 100).unwrap_err().to_string();
    assert!(error.contains("need 405 KV blocks"), "{error}");
}

#[test]
fn only_sequences_of_the_same_salt_share_blocks() {
    let mut world = World::new(64, 64, &[KvGroup::Full]);
    let cached = [None, Some("one"), Some("other"), Some("one"), None].map(|salt| {
        let id = world.add_salted(0..20, 1, salt);
        while world.step() {}
        world.answers[&id].num_cached_tokens
    });
    assert_eq!(cached, [0, 0, 0, 16, 16]);
}

#[test]
fn nothing_computed_before_a_reset_is_found_after_it() {
    let mut world = World::new(64, 8, &[KvGroup::Full, window(7)]);
    world.run(0..20, 1);
    // One runs on over the reset: neither what it has computed nor what it computes from that may be found.
    let long = world.add(100..140, 9);
    world.step();
    world.scheduler.reset_prefix_cache();
    assert_eq!(world.scheduler.stats().blocks.cached, 0);
    while world.step() {}
    assert_eq!(world.answers[&long].token_ids.len(), 9);
    assert_eq!(world.run(100..140, 1).num_cached_tokens, 0);
    assert_eq!(world.run(0..20, 1).num_cached_tokens, 0);
    assert_eq!(world.run(0..20, 1).num_cached_tokens, 16);
}

#[test]
fn events_say_what_is_stored_after_what_and_what_had_to_go() {
    let mut world = World::new(6, 64, &[KvGroup::Full]);
    let mut events = Vec::new();
    let id = world.add_salted(0..9, 1, Some("tenant"));
    while world.step() {}
    assert_eq!(world.answers[&id].token_ids.len(), 1);
    world.scheduler.take_kv_events(&mut events);
    let [KvEvent::Stored { group: 0, parent: None, hashes, token_ids, cache_salt }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!((hashes.len(), cache_salt.as_deref()), (2, Some("tenant")));
    assert_eq!(token_ids, &(0..8).collect::<Vec<u32>>());
    let (first, second) = (hashes[0], hashes[1]);

    // Another prompt needs five of the six blocks: the tail goes.
    world.run(100..117, 1);
    world.scheduler.take_kv_events(&mut events);
    assert_eq!(events[0], KvEvent::Removed { group: 0, hash: second });
    assert!(!events.contains(&KvEvent::Removed { group: 0, hash: first }));

    // The same again, and its second block follows the first, which is still there.
    world.add_salted(0..9, 1, Some("tenant"));
    while world.step() {}
    world.scheduler.take_kv_events(&mut events);
    let stored = |event: &KvEvent| {
        matches!(event, KvEvent::Stored { parent, hashes, .. }
        if *parent == Some(first) && *hashes == [second])
    };
    assert!(events.iter().any(stored), "{events:?}");
    world.scheduler.reset_prefix_cache();
    world.scheduler.take_kv_events(&mut events);
    assert_eq!(events, [KvEvent::Cleared]);
}

#[test]
fn of_what_is_cached_the_least_recently_used_goes_first_and_tails_before_beginnings() {
    let mut world = World::new(8, 64, &[KvGroup::Full]);
    world.run(0..13, 1);
    world.run(100..113, 1);
    // Used again, the older prompt is the younger one. Three blocks must go: all of the other.
    world.run(0..13, 1);
    world.run(200..217, 1);
    let hits = [0..13, 100..113].map(|prompt| world.run(prompt, 1).num_cached_tokens);
    assert_eq!(hits, [12, 0]);
}
