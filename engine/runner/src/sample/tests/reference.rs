//! The sampler by the book: plain, slow, in double precision, step by step in vLLM's order.

use regatta_core::plan::KnownTokens;
use regatta_core::sampling::SamplingParams;

/// Logits after masks, bias and penalties.
pub(super) fn adjusted(logits: &[f32], params: &SamplingParams, known: &KnownTokens) -> Vec<f64> {
    let occurrences = |id: u32| known.generated.iter().filter(|&&other| other == id).count() as f64;
    let adjust = |(id, &logit): (u32, &f32)| {
        let mut logit = f64::from(logit);
        let allowed = params.allowed_token_ids.as_ref().is_none_or(|allowed| allowed.contains(&id));
        let completes_bad_word = params.bad_words.iter().any(|word| {
            let mut after = known.generated.clone();
            after.push(id);
            after.ends_with(word)
        });
        let stops = params.stop_token_ids.contains(&id) && known.generated.len() < params.min_tokens as usize;
        if !allowed || completes_bad_word || stops {
            return f64::NEG_INFINITY;
        }
        for &(biased, bias) in params.logit_bias.iter() {
            logit += if biased == id { f64::from(bias) } else { 0.0 };
        }
        if known.prompt.contains(&id) || known.generated.contains(&id) {
            let repetition = f64::from(params.repetition_penalty);
            logit = if logit > 0.0 { logit / repetition } else { logit * repetition };
        }
        logit -= f64::from(params.frequency_penalty) * occurrences(id);
        logit - if occurrences(id) > 0.0 { f64::from(params.presence_penalty) } else { 0.0 }
    };
    (0..).zip(logits).map(adjust).collect()
}

/// The distribution that a token is drawn from.
pub(super) fn distribution(logits: &[f32], params: &SamplingParams, known: &KnownTokens) -> Vec<f64> {
    let adjusted = adjusted(logits, params, known);
    let max = adjusted.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights =
        adjusted.iter().map(|logit| ((logit - max) / f64::from(params.temperature)).exp()).collect();
    let mut probabilities = normalised(weights);
    let floor = f64::from(params.min_p) * probabilities.iter().copied().fold(0.0, f64::max);
    probabilities = kept(probabilities, |_, p| p >= floor);
    if params.top_k > 0 {
        let order = order(&probabilities, |p| p);
        let best = &order[..order.len().min(params.top_k as usize)];
        probabilities = kept(probabilities.clone(), |id, _| best.contains(&id));
    }
    if params.top_p < 1.0 {
        probabilities = mass(probabilities, f64::from(params.top_p), |p| p);
    }
    if params.typical_p < 1.0 {
        let present = probabilities.iter().filter(|&&p| p > 0.0);
        let entropy: f64 = present.map(|p| -p * p.ln()).sum();
        probabilities = mass(probabilities, f64::from(params.typical_p), |p| -(-p.ln() - entropy).abs());
    }
    probabilities
}

/// The best tokens by `score`, until they have `share` of the whole.
fn mass(probabilities: Vec<f64>, share: f64, score: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut sum = 0.0;
    let mut best = Vec::new();
    for id in order(&probabilities, score) {
        if sum < share {
            best.push(id);
            sum += probabilities[id];
        }
    }
    kept(probabilities, |id, _| best.contains(&id))
}

/// Possible tokens by score, the lower id first where scores are equal.
fn order(probabilities: &[f64], score: impl Fn(f64) -> f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..probabilities.len()).filter(|&id| probabilities[id] > 0.0).collect();
    order.sort_by(|&a, &b| score(probabilities[b]).total_cmp(&score(probabilities[a])).then(a.cmp(&b)));
    order
}

fn kept(probabilities: Vec<f64>, keep: impl Fn(usize, f64) -> bool) -> Vec<f64> {
    let kept = probabilities.iter().enumerate().map(|(id, &p)| if keep(id, p) { p } else { 0.0 }).collect();
    normalised(kept)
}

fn normalised(weights: Vec<f64>) -> Vec<f64> {
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}
