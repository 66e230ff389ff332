//! Beam search against a plain one over a small random model.

use proptest::prelude::*;
use regatta_core::beam::{BeamParams, BeamSearch, EarlyStopping, Extension, Hypothesis, Round};
use regatta_core::event::FinishReason;
use regatta_core::plan::TokenLogprob;

/// A distribution over a few tokens that depends on all tokens before.
#[derive(Clone, Copy, Debug)]
struct Model {
    seed: u64,
    vocab_size: u32,
}

impl Model {
    /// Log-probabilities of all tokens after `tokens`, likeliest first.
    fn next(&self, tokens: &[u32]) -> Vec<TokenLogprob> {
        let context = tokens.iter().fold(self.seed, |hash, &token| mix(hash ^ mix(u64::from(token) + 1)));
        let logit = |token: u32| (mix(context ^ u64::from(token)) % 1000) as f32 / 200.0;
        let sum: f32 = (0..self.vocab_size).map(|token| logit(token).exp()).sum();
        let mut all: Vec<TokenLogprob> = (0..self.vocab_size)
            .map(|token_id| TokenLogprob { token_id, logprob: logit(token_id) - sum.ln(), rank: 0 })
            .collect();
        all.sort_by(|a, b| b.logprob.total_cmp(&a.logprob).then(a.token_id.cmp(&b.token_id)));
        all
    }
}

fn mix(z: u64) -> u64 {
    let z = (z.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The search as it is driven: beams are token lists that are extended as told.
fn search(model: Model, params: BeamParams) -> (Vec<Hypothesis>, usize) {
    let mut search = BeamSearch::new(params);
    let mut beams: Vec<Vec<u32>> = vec![Vec::new()];
    for round in 1.. {
        assert_eq!(search.num_beams(), beams.len());
        let next: Vec<Vec<TokenLogprob>> = beams.iter().map(|beam| model.next(beam)).collect();
        let k = search.num_candidates() as usize;
        let likeliest: Vec<&[TokenLogprob]> = next.iter().map(|all| &all[..k.min(all.len())]).collect();
        match search.advance(&likeliest) {
            Round::Done(hypotheses) => return (hypotheses, round),
            Round::Continue(extensions) => {
                let extend = |&Extension { parent, token_id }: &Extension| {
                    beams[parent].iter().copied().chain([token_id]).collect()
                };
                beams = extensions.iter().map(extend).collect();
            }
        }
    }
    unreachable!("a search ends")
}

/// The same by the book: everything is kept and sorted anew.
fn plain(model: Model, params: &BeamParams) -> Vec<(Vec<u32>, f64)> {
    let width = params.width as usize;
    let score = |tokens: &[u32], sum: f64| {
        let stops = tokens.last().is_some_and(|token| params.stop_token_ids.contains(token));
        let len = params.num_prompt_tokens as usize + tokens.len() - usize::from(stops);
        sum / (len as f64).powf(f64::from(params.length_penalty))
    };
    let by_score = |a: &(Vec<u32>, f64), b: &(Vec<u32>, f64)| score(&b.0, b.1).total_cmp(&score(&a.0, a.1));
    let (mut beams, mut complete) = (vec![(Vec::new(), 0.0)], Vec::new());
    for _ in 0..params.max_tokens {
        let mut candidates = Vec::new();
        for (tokens, sum) in &beams {
            for next in model.next(tokens).iter().take(2 * width) {
                let tokens: Vec<u32> = tokens.iter().copied().chain([next.token_id]).collect();
                candidates.push((tokens, sum + f64::from(next.logprob)));
            }
        }
        let is_complete =
            |candidate: &(Vec<u32>, f64)| params.stop_token_ids.contains(candidate.0.last().unwrap());
        let (done, mut open): (Vec<_>, Vec<_>) = candidates.into_iter().partition(is_complete);
        complete.extend(done);
        open.sort_by(by_score);
        open.truncate(width);
        beams = open;
        complete.sort_by(by_score);
        let worst = complete.get(width - 1).map(|(tokens, sum)| score(tokens, *sum));
        let best = beams.first().map(|(tokens, sum)| score(tokens, *sum));
        let stops = match params.early_stopping {
            EarlyStopping::Never => false,
            EarlyStopping::Heuristic => worst.is_some_and(|worst| best.is_none_or(|best| worst >= best)),
            EarlyStopping::Always => worst.is_some(),
        };
        if stops || beams.is_empty() {
            break;
        }
    }
    complete.extend(beams);
    complete.sort_by(by_score);
    complete.truncate(width);
    complete.into_iter().map(|(tokens, sum)| (tokens.clone(), score(&tokens, sum))).collect()
}

fn params() -> impl Strategy<Value = BeamParams> {
    let early_stopping =
        prop::sample::select(vec![EarlyStopping::Never, EarlyStopping::Heuristic, EarlyStopping::Always]);
    let stops = prop::collection::vec(0u32..6, 0..3);
    (1u32..5, 1u32..9, -1.5f32..2.5, early_stopping, stops, 1u32..20).prop_map(
        |(width, max_tokens, length_penalty, early_stopping, stop_token_ids, num_prompt_tokens)| BeamParams {
            width,
            max_tokens,
            length_penalty,
            early_stopping,
            stop_token_ids,
            num_prompt_tokens,
            num_top: 2,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 2000 }))]

    #[test]
    fn the_hypotheses_are_those_of_a_plain_search(
        params in params(),
        seed in any::<u64>(),
        vocab_size in 1u32..12,
    ) {
        let model = Model { seed, vocab_size };
        let (found, _) = search(model, params.clone());
        let expected = plain(model, &params);
        let tokens: Vec<_> = found.iter().map(|one| one.token_ids.clone()).collect();
        prop_assert_eq!(tokens, expected.iter().map(|(tokens, _)| tokens.clone()).collect::<Vec<_>>());
        for (one, (_, score)) in found.iter().zip(&expected) {
            prop_assert!((one.score - score).abs() < 1e-9);
            let sum: f64 = one.logprobs.iter().map(|position| f64::from(position.token.logprob)).sum();
            prop_assert!((sum - one.cumulative_logprob).abs() < 1e-9);
            prop_assert!(one.logprobs.iter().all(|position| position.top.len() == 2.min(vocab_size as usize).min(2 * params.width as usize)));
            let ids: Vec<u32> = one.logprobs.iter().map(|position| position.token.token_id).collect();
            prop_assert_eq!(&ids, &one.token_ids);
            let stop = one.token_ids.last().filter(|token| params.stop_token_ids.contains(token));
            let reason = stop.map_or(FinishReason::Length, |&token_id| FinishReason::Stop { token_id });
            prop_assert_eq!(one.reason, reason);
        }
    }
}

#[test]
fn a_beam_of_one_is_greedy() {
    let model = Model { seed: 3, vocab_size: 50 };
    let params = BeamParams {
        width: 1,
        max_tokens: 20,
        length_penalty: 1.0,
        early_stopping: EarlyStopping::Never,
        stop_token_ids: Vec::new(),
        num_prompt_tokens: 1,
        num_top: 0,
    };
    let (found, _) = search(model, params);
    let mut greedy = Vec::new();
    (0..20).for_each(|_| greedy.push(model.next(&greedy)[0].token_id));
    assert_eq!(found[0].token_ids, greedy);
}

#[test]
fn a_search_stops_once_nothing_better_can_come() {
    let model = Model { seed: 5, vocab_size: 8 };
    let params = |early_stopping| BeamParams {
        width: 2,
        max_tokens: 200,
        length_penalty: 0.0,
        early_stopping,
        stop_token_ids: vec![0, 1],
        num_prompt_tokens: 5,
        num_top: 0,
    };
    let rounds = |early_stopping| search(model, params(early_stopping)).1;
    assert!(rounds(EarlyStopping::Always) <= rounds(EarlyStopping::Heuristic));
    assert!(rounds(EarlyStopping::Never) < 100, "{} rounds", rounds(EarlyStopping::Never));
}

#[test]
fn very_long_hypotheses_are_forgotten_without_deep_recursion() {
    // Miri is too slow for a depth that would overflow the stack, and sees what is freed twice or read after it.
    let max_tokens = if cfg!(miri) { 200 } else { 300_000 };
    let one = [TokenLogprob { token_id: 7, logprob: 0.0, rank: 1 }];
    let mut search = BeamSearch::new(BeamParams {
        width: 1,
        max_tokens,
        length_penalty: 1.0,
        early_stopping: EarlyStopping::Never,
        stop_token_ids: Vec::new(),
        num_prompt_tokens: 1,
        num_top: 0,
    });
    for _ in 1..max_tokens {
        assert!(matches!(search.advance(&[&one]), Round::Continue(_)));
    }
    drop(search);
}
