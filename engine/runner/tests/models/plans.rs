//! Plans that break their contract: an error that says why, and a runner that goes on.

use std::sync::Arc;

use regatta_core::plan::{Admission, BlockCopy, BlockId, Row, SequencePlan, StepOutput, StepPlan};
use regatta_core::runner::{ModelRunner, Ticket};
use regatta_core::sampling::SamplingParams;
use regatta_runner::load::{KvMemory, LoadOptions, load};
use rstest::rstest;

use crate::play::{data, windowed};

fn runner() -> Box<dyn ModelRunner> {
    let options = LoadOptions {
        max_num_seqs: 2,
        max_num_batched_tokens: 40,
        max_model_len: Some(64),
        kv_memory: KvMemory::Blocks(4),
        ..Default::default()
    };
    load(&data("tiny-llama"), &options).unwrap().runner
}

fn admission(row: u32) -> Admission {
    Admission {
        row: Row(row),
        sampling: Arc::new(SamplingParams::default()),
        num_prompt_tokens: 17,
        known_tokens: None,
    }
}

fn sequence(row: u32) -> SequencePlan {
    let row = Row(row);
    SequencePlan {
        row,
        position: 0,
        num_tokens: 17,
        num_placeholders: 0,
        num_new_blocks: 2,
        samples: true,
        next_prompt_token: None,
    }
}

/// A plan that is as it should be: 17 tokens on two blocks.
fn valid() -> StepPlan {
    StepPlan {
        step: 1,
        admitted: vec![admission(0)],
        sequences: vec![sequence(0)],
        token_ids: vec![5; 17],
        new_blocks: vec![BlockId(3), BlockId(0)],
        ..Default::default()
    }
}

#[rstest]
#[case::row_to_admit("row 2 is beyond the 2 rows", |plan: &mut StepPlan| plan.admitted.push(admission(2)))]
#[case::row_to_release("row 9 is beyond the 2 rows", |plan: &mut StepPlan| plan.released.push(Row(9)))]
#[case::occupied("row 0 is admitted while", |plan: &mut StepPlan| plan.admitted.push(admission(0)))]
#[case::empty_row("row 1 is planned and holds no sequence", |plan: &mut StepPlan| plan.sequences[0].row = Row(1))]
#[case::no_row("row 7 is beyond the 2 rows", |plan: &mut StepPlan| plan.sequences[0].row = Row(7))]
#[case::block("block 4 is beyond the pool of 4", |plan: &mut StepPlan| plan.new_blocks[0] = BlockId(4))]
#[case::copied_block("block 4294967295 is beyond", |plan: &mut StepPlan| {
    plan.block_copies.push(BlockCopy { from: BlockId(0), to: BlockId(u32::MAX) });
})]
#[case::token("token 320 is beyond the vocabulary of 320", |plan: &mut StepPlan| plan.token_ids[3] = 320)]
#[case::next_token("token 320 is beyond", |plan: &mut StepPlan| plan.sequences[0].next_prompt_token = Some(320))]
#[case::missing_tokens("17 tokens are planned and 16 given", |plan: &mut StepPlan| plan.token_ids.truncate(16))]
#[case::missing_blocks("2 new blocks are planned and 1 given", |plan: &mut StepPlan| plan.new_blocks.truncate(1))]
#[case::no_blocks("row 0 has 0 blocks, 17 positions need 2", |plan: &mut StepPlan| {
    plan.new_blocks.clear();
    plan.sequences[0].num_new_blocks = 0;
})]
#[case::too_many_tokens("41 tokens are planned and 41 given, at most 40 fit", |plan: &mut StepPlan| {
    plan.token_ids = vec![5; 41];
    plan.sequences[0].num_tokens = 41;
})]
#[case::too_many_blocks("row 0 has 5 blocks, at most 4", |plan: &mut StepPlan| {
    plan.new_blocks = vec![BlockId(1); 5];
    plan.sequences[0].num_new_blocks = 5;
})]
#[case::placeholder("row 0 goes on with a token that is not given", |plan: &mut StepPlan| {
    plan.sequences[0].num_placeholders = 1;
})]
#[case::nothing("row 0 computes 0 tokens", |plan: &mut StepPlan| {
    plan.token_ids.clear();
    plan.sequences[0].num_tokens = 0;
})]
#[case::overflow("row 0 computes 17 tokens at position 4294967295", |plan: &mut StepPlan| plan.sequences[0].position = u32::MAX)]
#[case::twice("row 0 is planned twice", |plan: &mut StepPlan| {
    plan.sequences = vec![SequencePlan { num_tokens: 1, num_new_blocks: 1, ..sequence(0) }; 2];
    plan.token_ids.truncate(2);
})]
fn a_broken_plan_is_refused_and_the_runner_goes_on(
    #[case] reason: &str,
    #[case] break_it: fn(&mut StepPlan),
) {
    let mut runner = runner();
    let mut plan = valid();
    break_it(&mut plan);
    let error = runner.submit(&plan).expect_err("the plan is broken");
    assert!(error.to_string().starts_with(&format!("step 1 failed: {reason}")), "{error}");
    let plan = StepPlan { step: 2, released: vec![Row(0), Row(1)], ..valid() };
    let ticket = runner.submit(&plan).unwrap();
    let mut output = StepOutput::default();
    runner.collect(ticket, &mut output).unwrap();
    assert_eq!(output.sequences[0].token_ids.len(), 1);
}

#[test]
fn a_step_is_collected_once_and_before_the_next() {
    let mut runner = runner();
    let mut output = StepOutput::default();
    let ticket = runner.submit(&valid()).unwrap();
    runner.submit(&valid()).expect_err("the first step is not collected");
    runner.collect(Ticket(8), &mut output).expect_err("step 8 was not submitted");
    runner.collect(ticket, &mut output).unwrap();
    runner.collect(Ticket(1), &mut output).expect_err("it is collected");
}

#[test]
fn a_copied_block_serves_as_the_first() {
    let mut runner = runner();
    let mut output = StepOutput::default();
    let mut run = |plan: &StepPlan| {
        let ticket = runner.submit(plan).unwrap();
        runner.collect(ticket, &mut output).unwrap();
        output.sequences[0].token_ids.clone()
    };
    let first = run(&valid());
    // Another sequence with the same tokens computes only the last of them, over copies.
    let last = SequencePlan { position: 16, num_tokens: 1, ..sequence(1) };
    let copies = [(3, 1), (0, 2)].map(|(from, to)| BlockCopy { from: BlockId(from), to: BlockId(to) });
    let second = run(&StepPlan {
        step: 2,
        admitted: vec![admission(1)],
        block_copies: copies.to_vec(),
        sequences: vec![last],
        token_ids: vec![5],
        new_blocks: vec![BlockId(1), BlockId(2)],
        ..Default::default()
    });
    assert_eq!(first, second);
}

#[test]
fn a_window_may_lack_blocks_before_it_and_no_others() {
    let folder = windowed(8, &["sliding_attention", "full_attention"]);
    let options = LoadOptions {
        max_num_seqs: 2,
        max_num_batched_tokens: 40,
        max_model_len: Some(64),
        kv_memory: KvMemory::Blocks(8),
        ..Default::default()
    };
    let mut runner = load(folder.path(), &options).unwrap().runner;
    // A prefix of 32 tokens is there: the window sees its second block only.
    let with = |new_blocks: [u32; 6]| StepPlan {
        step: 1,
        released: vec![Row(0)],
        admitted: vec![admission(0)],
        sequences: vec![SequencePlan { position: 32, num_tokens: 1, num_new_blocks: 6, ..sequence(0) }],
        token_ids: vec![5],
        new_blocks: new_blocks.map(BlockId).to_vec(),
        ..Default::default()
    };
    let none = BlockId::NONE.0;
    runner.submit(&with([none, none, 2, 3, 4, 5])).expect_err("the window sees positions 25 to 31");
    runner.submit(&with([none, 1, 2, 3, none, 5])).expect_err("the other group sees them all");
    let mut uneven = with([none, 1, 2, 3, 4, 5]);
    uneven.new_blocks.pop();
    uneven.sequences[0].num_new_blocks = 5;
    runner.submit(&uneven).expect_err("not the same number for each group");
    let ticket = runner.submit(&with([none, 1, 2, 3, 4, 5])).unwrap();
    runner.collect(ticket, &mut StepOutput::default()).unwrap();
}
