//! Samplers against their distributions: fixed seeds, so a failure is a fault and never bad luck.

use super::*;

const DRAWS: u32 = 20_000;

fn logits() -> Vec<f32> {
    (0..40).map(|i| ((i * 7) % 40) as f32 * 0.15).collect()
}

/// The distribution by the book: sort, cut, renormalise, in double precision.
fn distribution(logits: &[f32], params: &SamplingParams) -> Vec<f64> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].partial_cmp(&logits[a]).unwrap().then(a.cmp(&b)));
    if params.top_k > 0 {
        order.truncate(params.top_k as usize);
    }
    let weight = |id: usize| (f64::from(logits[id]) / f64::from(params.temperature)).exp();
    let total: f64 = order.iter().map(|&id| weight(id)).sum();
    let mut mass = 0.0;
    let kept = order.iter().take_while(|&&id| {
        let open = mass < f64::from(params.top_p) * total;
        mass += weight(id);
        open
    });
    let kept: Vec<usize> = kept.copied().collect();
    let total: f64 = kept.iter().map(|&id| weight(id)).sum();
    let mut probabilities = vec![0.0; logits.len()];
    kept.iter().for_each(|&id| probabilities[id] = weight(id) / total);
    probabilities
}

fn check(params: SamplingParams) {
    let logits = logits();
    let expected = distribution(&logits, &params);
    let mut sampler = Sampler::default();
    let mut counts = vec![0u32; logits.len()];
    (0..DRAWS).for_each(|position| counts[sampler.choose(&logits, &params, position) as usize] += 1);
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
fn of_equal_tokens_the_nucleus_holds_the_lower_ids() {
    let logits = vec![0.0; 5000];
    let params = SamplingParams { top_p: 0.5, seed: 3, ..Default::default() };
    let mut sampler = Sampler::default();
    let drawn: Vec<u32> = (0..500).map(|position| sampler.choose(&logits, &params, position)).collect();
    assert!(drawn.iter().all(|&id| id < 2500), "of equal tokens the lower ids are in the nucleus");
    assert!(drawn.iter().any(|&id| id > 2000));
}

#[test]
fn greedy_takes_the_lowest_id_of_equals() {
    let params = SamplingParams { temperature: 0.0, ..Default::default() };
    assert_eq!(Sampler::default().choose(&[1.0, 3.0, 3.0, 2.0], &params, 0), 1);
}

#[test]
fn choices_of_one_request_differ_and_the_same_choice_repeats() {
    let logits = logits();
    let mut sampler = Sampler::default();
    let mut text = |choice| -> Vec<u32> {
        let params = SamplingParams { choice, seed: 5, ..Default::default() };
        (0..50).map(|position| sampler.choose(&logits, &params, position)).collect()
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
            assert!([1, 3].contains(&Sampler::default().choose(&logits, &params, position)));
        }
    }
}

#[test]
fn logits_without_any_number_choose_the_first_token() {
    for (temperature, top_k, top_p) in [(0.0, 0, 1.0), (1.0, 0, 1.0), (1.0, 2, 1.0), (1.0, 0, 0.5)] {
        let params = SamplingParams { temperature, top_k, top_p, ..Default::default() };
        assert_eq!(Sampler::default().choose(&[f32::NAN; 5], &params, 0), 0);
    }
}
