//! A sequence's tokens and log-probabilities are the same bits alone, in any batch, in any chunks, on any blocks.

use std::path::Path;

use crate::play::{Dice, data, demo_model, mixed, play_alone, play_together, windowed};
use proptest::prelude::*;
use regatta_core::runner::ModelRunner;
use regatta_runner::load::{KvMemory, LoadOptions, load};

fn tiny(path: &Path) -> Box<dyn ModelRunner> {
    let options = LoadOptions {
        max_num_seqs: 32,
        max_num_batched_tokens: 192,
        max_model_len: Some(256),
        kv_memory: KvMemory::Blocks(2 * 32 * 16),
        ..Default::default()
    };
    load(path, &options).unwrap().runner
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20, ..ProptestConfig::with_cases(12) })]

    #[test]
    fn tiny_models_answer_in_company_as_they_do_alone(
        seed in any::<u64>(),
        model in prop::sample::select(vec!["tiny-llama", "tiny-mistral"]),
    ) {
        let mut dice = Dice(seed);
        let requests = mixed(32, 120, 320, 12, &mut dice);
        let mut runner = tiny(&data(model));
        let alone = play_alone(runner.as_mut(), &requests);
        let together = play_together(runner.as_mut(), &requests, &mut dice);
        prop_assert_eq!(alone, together);
    }

    #[test]
    fn windows_do_not_change_that(
        seed in any::<u64>(),
        window in 1u32..100,
        first in prop::sample::select(vec!["sliding_attention", "full_attention"]),
    ) {
        let mut dice = Dice(seed);
        let requests = mixed(32, 120, 320, 12, &mut dice);
        let folder = windowed(window, &[first, "sliding_attention"]);
        let mut runner = tiny(folder.path());
        let alone = play_alone(runner.as_mut(), &requests);
        let together = play_together(runner.as_mut(), &requests, &mut dice);
        prop_assert_eq!(alone, together);
    }
}

#[test]
fn the_demo_model_answers_in_company_as_it_does_alone() {
    let options = LoadOptions {
        max_num_seqs: 32,
        max_num_batched_tokens: 512,
        max_model_len: Some(512),
        kv_memory: KvMemory::Blocks(32 * 32),
        ..Default::default()
    };
    let mut runner = load(&demo_model(), &options).unwrap().runner;
    let mut dice = Dice(1);
    let requests = mixed(32, 100, 49_152, 6, &mut dice);
    let alone = play_alone(runner.as_mut(), &requests);
    let together = play_together(runner.as_mut(), &requests, &mut dice);
    assert_eq!(alone, together);
}
