//! Every parameter at once, over random logits, against the plain formula.

use proptest::prelude::*;

use super::*;

fn known() -> impl Strategy<Value = KnownTokens> {
    let tokens = |len| prop::collection::vec(0u32..12, len);
    (tokens(1..6), tokens(0..6))
        .prop_map(|(prompt, generated)| KnownTokens { prompt: prompt.into(), generated })
}

fn penalties() -> impl Strategy<Value = SamplingParams> {
    let allowed = prop::option::weighted(0.3, prop::collection::vec(0u32..40, 1..30));
    let words = prop::collection::vec(prop::collection::vec(0u32..12, 1..3), 0..4);
    let bias = prop::collection::btree_map(0u32..40, -5.0f32..5.0, 0..4);
    let stops = (prop::collection::vec(0u32..12, 0..3), 0u32..6);
    let penalties = (
        prop_oneof![Just(0.0), -2.0f32..2.0],
        prop_oneof![Just(0.0), -2.0f32..2.0],
        prop_oneof![Just(1.0), 0.3f32..3.0],
    );
    (allowed, words, bias, stops, penalties).prop_map(|(allowed, words, bias, stops, penalties)| {
        SamplingParams {
            allowed_token_ids: allowed.map(Into::into),
            bad_words: words.into(),
            logit_bias: bias.into_iter().collect(),
            stop_token_ids: stops.0,
            min_tokens: stops.1,
            presence_penalty: penalties.0,
            frequency_penalty: penalties.1,
            repetition_penalty: penalties.2,
            ..Default::default()
        }
    })
}

fn params() -> impl Strategy<Value = SamplingParams> {
    let cuts = (
        prop_oneof![Just(0.0), 0.01f32..0.9],
        prop_oneof![Just(0), 1u32..50],
        prop_oneof![Just(1.0), 0.05f32..0.99],
        prop_oneof![Just(1.0), 0.05f32..0.99],
    );
    (penalties(), 0.2f32..3.0, cuts).prop_map(|(params, temperature, cuts)| SamplingParams {
        temperature,
        min_p: cuts.0,
        top_k: cuts.1,
        top_p: cuts.2,
        typical_p: cuts.3,
        logprobs: Some(40),
        logprobs_mode: LogprobsMode::ProcessedLogprobs,
        ..params
    })
}

/// Whether single precision decides every cut as double precision does: none is close.
fn is_clear_cut(logits: &[f32], params: &SamplingParams, known: &KnownTokens) -> bool {
    let support = |params: &SamplingParams| -> Vec<bool> {
        reference::distribution(logits, params, known).iter().map(|&p| p > 0.0).collect()
    };
    let with = |factor: f32| {
        let SamplingParams { min_p, top_p, typical_p, .. } = *params;
        let near = |p: f32| if p < 1.0 { p * factor } else { p };
        SamplingParams {
            min_p: min_p * factor,
            top_p: near(top_p),
            typical_p: near(typical_p),
            ..params.clone()
        }
    };
    let exact = support(params);
    [1.0 - 1e-4, 1.0 + 1e-4].iter().all(|&factor| support(&with(factor)) == exact)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_token_is_drawn_from_the_distribution_by_the_book(
        logits in prop::collection::vec(-6.0f32..6.0, 40),
        known in known(),
        params in params(),
        position in 0u32..1000,
    ) {
        let expected = reference::distribution(&logits, &params, &known);
        prop_assume!(expected.iter().any(|p| p.is_finite() && *p > 0.0));
        prop_assume!(is_clear_cut(&logits, &params, &known));
        let history = History::from(&known);
        let place = Place {
            params: &params,
            position,
            num_generated: known.generated.len() as u32,
            history: Some(&history),
        };
        let Sampled { token_id, logprobs } = Sampler::default().sample(&logits, place).expect("a token is left");
        let draw = random::uniform(params.seed, params.choice, position);
        let below: f64 = expected[..token_id as usize].iter().sum();
        let above = below + expected[token_id as usize];
        prop_assert!(below - 1e-5 <= draw && draw <= above + 1e-5, "{draw} is not in {below}..{above}");
        for entry in logprobs.expect("they are asked for").top {
            let p = expected[entry.token_id as usize];
            let close = (f64::from(entry.logprob).exp() - p).abs() < 1e-4;
            prop_assert!(close, "token {} has {}, not {p}", entry.token_id, entry.logprob);
        }
    }

    #[test]
    fn greedy_takes_the_best_of_the_adjusted_logits(
        logits in prop::collection::vec(-6.0f32..6.0, 40),
        known in known(),
        params in penalties(),
    ) {
        let adjusted = reference::adjusted(&logits, &params, &known);
        let best = adjusted.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        prop_assume!(best.is_finite());
        let params = SamplingParams {
            temperature: 0.0,
            logprobs: Some(1),
            logprobs_mode: LogprobsMode::ProcessedLogits,
            ..params
        };
        let history = History::from(&known);
        let num_generated = known.generated.len() as u32;
        let place = Place { params: &params, position: 9, num_generated, history: Some(&history) };
        let sampled = Sampler::default().sample(&logits, place).expect("a token is left");
        prop_assert!((adjusted[sampled.token_id as usize] - best).abs() < 1e-4);
        prop_assert!((f64::from(sampled.logprobs.expect("asked for").token.logprob) - best).abs() < 1e-4);
    }
}
