//! Samplers against their distributions: fixed seeds, so a failure is a fault and never bad luck.

mod formula;
mod reference;

use super::*;
use regatta_core::plan::KnownTokens;

const DRAWS: u32 = 20_000;

fn logits() -> Vec<f32> {
    (0..40).map(|i| ((i * 7) % 40) as f32 * 0.15).collect()
}

/// A token sequence that penalties look back at.
fn known() -> KnownTokens {
    KnownTokens { prompt: [3, 4, 5, 5].into(), generated: vec![7, 8, 7, 9, 7] }
}

fn choose(sampler: &mut Sampler, logits: &[f32], params: &SamplingParams, position: u32) -> u32 {
    let place = Place { params, position, num_generated: position, history: None };
    sampler.sample(logits, place).expect("a token is left").token_id
}

#[test]
fn masks_that_leave_no_token_choose_none() {
    for temperature in [0.0, 1.0] {
        let params = SamplingParams {
            temperature,
            allowed_token_ids: Some([1, 3].into()),
            bad_words: [vec![1], vec![2, 3]].into(),
            ..SamplingParams::default()
        };
        let sample = |generated: &[u32]| {
            let known = KnownTokens { prompt: [0].into(), generated: generated.to_vec() };
            let history = History::from(&known);
            let place = Place { params: &params, position: 1, num_generated: 1, history: Some(&history) };
            Sampler::default().sample(&logits(), place).map(|sampled| sampled.token_id)
        };
        assert_eq!(sample(&[4]), Some(3));
        assert_eq!(sample(&[2]), None);
    }
}

fn check(params: SamplingParams) {
    let logits = logits();
    let (known, history) = (known(), History::from(&known()));
    let expected = reference::distribution(&logits, &params, &known);
    let mut sampler = Sampler::default();
    let mut counts = vec![0u32; logits.len()];
    for position in 0..DRAWS {
        let num_generated = known.generated.len() as u32;
        let place = Place { params: &params, position, num_generated, history: Some(&history) };
        counts[sampler.sample(&logits, place).expect("a token is left").token_id as usize] += 1;
    }
    let mut statistic = 0.0;
    let mut bins = 0;
    for (&count, &probability) in counts.iter().zip(&expected) {
        if probability == 0.0 {
            assert_eq!(count, 0, "a token outside the cut was drawn with {params:?}");
            continue;
        }
        let mean = probability * f64::from(DRAWS);
        statistic += (f64::from(count) - mean).powi(2) / mean;
        bins += 1;
    }
    // Mean and standard deviation of chi-squared are its degrees of freedom and the root of twice that.
    let freedom = f64::from(bins - 1);
    let limit = freedom + 4.0 * (2.0 * freedom).sqrt();
    assert!(statistic <= limit, "chi-squared is {statistic}, at most {limit} expected with {params:?}");
}

#[test]
fn draws_follow_the_softmax_at_every_temperature() {
    for temperature in [0.3, 1.0, 2.5] {
        check(SamplingParams { temperature, seed: 7, ..Default::default() });
    }
}

#[test]
fn draws_follow_the_softmax_of_the_top_k() {
    for top_k in [1, 2, 10, 39, 40, 1000] {
        check(SamplingParams { top_k, seed: 8, ..Default::default() });
    }
}

#[test]
fn draws_follow_the_softmax_of_the_nucleus() {
    for top_p in [1e-6, 0.1, 0.5, 0.9, 0.999] {
        check(SamplingParams { top_p, seed: 9, ..Default::default() });
    }
}

#[test]
fn the_nucleus_is_taken_of_what_top_k_leaves_and_after_temperature() {
    for (top_k, top_p, temperature) in [(10, 0.5, 1.0), (20, 0.8, 0.7), (5, 0.95, 3.0)] {
        check(SamplingParams { top_k, top_p, temperature, seed: 10, ..Default::default() });
    }
}

#[test]
fn draws_follow_the_softmax_of_what_min_p_leaves() {
    for min_p in [0.001, 0.1, 0.5, 1.0] {
        check(SamplingParams { min_p, seed: 11, ..Default::default() });
    }
}

#[test]
fn draws_follow_the_softmax_of_the_typical_tokens() {
    for typical_p in [0.05, 0.2, 0.5, 0.9, 0.99] {
        check(SamplingParams { typical_p, temperature: 1.5, seed: 12, ..Default::default() });
    }
}

#[test]
fn all_cuts_follow_each_other() {
    let cuts = SamplingParams { min_p: 0.02, top_k: 25, top_p: 0.95, typical_p: 0.8, ..Default::default() };
    check(SamplingParams { seed: 13, ..cuts });
}

#[test]
fn draws_follow_the_softmax_after_penalties() {
    check(SamplingParams { presence_penalty: 1.5, seed: 14, ..Default::default() });
    check(SamplingParams { frequency_penalty: 0.7, seed: 15, ..Default::default() });
    check(SamplingParams { repetition_penalty: 1.6, seed: 16, ..Default::default() });
    check(SamplingParams {
        repetition_penalty: 0.5,
        frequency_penalty: -0.5,
        seed: 17,
        ..Default::default()
    });
}

#[test]
fn draws_follow_the_softmax_after_bias_and_masks() {
    check(SamplingParams { logit_bias: [(2, 4.0), (39, -100.0)].into(), seed: 18, ..Default::default() });
    let allowed = Some([1, 5, 17, 30].into());
    check(SamplingParams { allowed_token_ids: allowed, seed: 19, ..Default::default() });
    let bad_words = [vec![11], vec![9, 7, 20], vec![9, 21]].into();
    check(SamplingParams { bad_words, seed: 20, ..Default::default() });
    check(SamplingParams { min_tokens: 6, stop_token_ids: vec![34, 39], seed: 21, ..Default::default() });
    check(SamplingParams { min_tokens: 5, stop_token_ids: vec![34, 39], seed: 22, ..Default::default() });
}

#[test]
fn log_probabilities_are_of_the_kind_asked_for() {
    let logits = [1.0, 2.0, 0.5];
    let report = |logprobs_mode, temperature| {
        let logit_bias = [(2, 3.0)].into();
        let params = SamplingParams {
            temperature,
            top_k: 2,
            logprobs: Some(3),
            logprobs_mode,
            logit_bias,
            ..Default::default()
        };
        let place = Place { params: &params, position: 0, num_generated: 0, history: None };
        let sampled = Sampler::default().sample(&logits, place).expect("a token is left");
        let top = sampled.logprobs.expect("they are asked for").top;
        let mut values = [0.0; 3];
        top.iter().for_each(|entry| values[entry.token_id as usize] = entry.logprob);
        values
    };
    let raw = report(LogprobsMode::RawLogprobs, 0.5);
    assert!((raw[1] - raw[0] - 1.0).abs() < 1e-6 && (raw[0] - raw[2] - 0.5).abs() < 1e-6, "{raw:?}");
    assert_eq!(report(LogprobsMode::RawLogits, 0.5), logits);
    assert_eq!(report(LogprobsMode::ProcessedLogits, 0.5), [-9999.0, 4.0, 7.0]);
    assert_eq!(report(LogprobsMode::ProcessedLogits, 0.0), [1.0, 2.0, 3.5]);
    let processed = report(LogprobsMode::ProcessedLogprobs, 0.5);
    assert!((processed[1].exp() + processed[2].exp() - 1.0).abs() < 1e-6, "{processed:?}");
    assert!((processed[2] - processed[1] - 3.0).abs() < 1e-6 && processed[0] == -9999.0, "{processed:?}");
}

#[test]
fn ids_outside_the_vocabulary_change_nothing() {
    let params = SamplingParams {
        logit_bias: [(3, 5.0), (u32::MAX, 5.0)].into(),
        bad_words: [vec![7]].into(),
        stop_token_ids: vec![100],
        min_tokens: 9,
        allowed_token_ids: Some([0, 1, 50].into()),
        temperature: 0.0,
        ..Default::default()
    };
    assert_eq!(choose(&mut Sampler::default(), &[1.0, 2.0, 3.0], &params, 0), 1);
}

#[test]
fn of_equal_tokens_the_nucleus_holds_the_lower_ids() {
    let logits = vec![0.0; 5000];
    let params = SamplingParams { top_p: 0.5, seed: 3, ..Default::default() };
    let mut sampler = Sampler::default();
    let drawn: Vec<u32> = (0..500).map(|position| choose(&mut sampler, &logits, &params, position)).collect();
    assert!(drawn.iter().all(|&id| id < 2500), "of equal tokens the lower ids are in the nucleus");
    assert!(drawn.iter().any(|&id| id > 2000));
}

#[test]
fn greedy_takes_the_lowest_id_of_equals() {
    let params = SamplingParams { temperature: 0.0, ..Default::default() };
    assert_eq!(choose(&mut Sampler::default(), &[1.0, 3.0, 3.0, 2.0], &params, 0), 1);
}

#[test]
fn choices_of_one_request_differ_and_the_same_choice_repeats() {
    let logits = logits();
    let mut sampler = Sampler::default();
    let mut text = |choice| -> Vec<u32> {
        let params = SamplingParams { choice, seed: 5, ..Default::default() };
        (0..50).map(|position| choose(&mut sampler, &logits, &params, position)).collect()
    };
    assert_ne!(text(0), text(1));
    assert_eq!(text(1), text(1));
}

#[test]
fn impossible_tokens_are_never_drawn() {
    let logits = [f32::NEG_INFINITY, 0.0, f32::NAN, 0.0];
    for (top_k, top_p) in [(0, 1.0), (3, 1.0), (0, 0.999)] {
        let params = SamplingParams { top_k, top_p, ..Default::default() };
        for position in 0..1000 {
            assert!([1, 3].contains(&choose(&mut Sampler::default(), &logits, &params, position)));
        }
    }
}

#[test]
fn logits_without_any_number_choose_the_first_token() {
    for (temperature, top_k, top_p) in [(0.0, 0, 1.0), (1.0, 0, 1.0), (1.0, 2, 1.0), (1.0, 0, 0.5)] {
        let params = SamplingParams { temperature, top_k, top_p, ..Default::default() };
        assert_eq!(choose(&mut Sampler::default(), &[f32::NAN; 5], &params, 0), 0);
    }
}
