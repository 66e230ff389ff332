//! From logits to a token: greedy, or a draw after temperature, `top_k` and `top_p`, in this order.

mod exp;
mod logprobs;
mod random;
mod top;

pub(crate) use logprobs::logprobs;
use regatta_core::sampling::SamplingParams;

use exp::exp;
use top::{argmax, top};

/// Chooses tokens; keeps its working memory.
#[derive(Default)]
pub(crate) struct Sampler {
    weights: Vec<f32>,
}

/// Weights are summed by chunks of this many, and a draw skips whole chunks.
const CHUNK: usize = 256;

/// How many candidates a nucleus is first looked for in.
const FIRST_NUCLEUS: usize = 64;

impl Sampler {
    /// Chooses the token at `position` of a sequence.
    pub(crate) fn choose(&mut self, logits: &[f32], params: &SamplingParams, position: u32) -> u32 {
        if params.temperature <= 0.0 {
            return argmax(logits);
        }
        let draw = random::uniform(params.seed, params.choice, position);
        let top_k = params.top_k as usize;
        if 0 < top_k && top_k < logits.len() {
            self.draw_from_top(logits, params, top_k, draw)
        } else if params.top_p < 1.0 {
            self.draw_from_nucleus(logits, params, draw)
        } else {
            let total = self.weigh(logits, params.temperature);
            self.draw(total, draw).unwrap_or_else(|| argmax(logits))
        }
    }

    /// Sets `weights` to `exp((logit - max) / temperature)`, by token, and returns their sum.
    fn weigh(&mut self, logits: &[f32], temperature: f32) -> f64 {
        let (max, scale) = (logprobs::max(logits), 1.0 / temperature);
        self.weights.clear();
        self.weights.extend(logits.iter().map(|&logit| exp((logit - max) * scale)));
        self.weights.chunks(CHUNK).map(sum).sum()
    }

    /// The index at which the cumulative weight passes `draw * total`; `None` where nothing weighs anything.
    fn draw(&self, total: f64, draw: f64) -> Option<u32> {
        let mut left = draw * total;
        let mut last = None;
        for (start, chunk) in (0..).step_by(CHUNK).zip(self.weights.chunks(CHUNK)) {
            let weight = sum(chunk);
            if left >= weight {
                left -= weight;
                continue;
            }
            for (index, &weight) in (start..).zip(chunk) {
                if weight > 0.0 {
                    last = Some(index);
                }
                left -= f64::from(weight);
                if left < 0.0 {
                    return last;
                }
            }
        }
        // Rounding can leave a remainder behind the last token.
        last.or_else(|| self.weights.iter().rposition(|&weight| weight > 0.0).map(|index| index as u32))
    }

    fn draw_from_top(&mut self, logits: &[f32], params: &SamplingParams, top_k: usize, draw: f64) -> u32 {
        let candidates = top(logits, top_k);
        let sorted: Vec<f32> = candidates.iter().map(|candidate| candidate.logit).collect();
        let total = self.weigh(&sorted, params.temperature);
        let kept = self.nucleus(f64::from(params.top_p) * total).unwrap_or(candidates.len());
        self.weights.truncate(kept);
        let total = self.weights.chunks(CHUNK).map(sum).sum();
        candidates[self.draw(total, draw).unwrap_or(0) as usize].id
    }

    /// The nucleus (Holtzman et al., 2020) is the shortest prefix of the sorted vocabulary that has `top_p` of the
    /// mass; mostly it is short, so it is looked for in the best few and then in more of them.
    fn draw_from_nucleus(&mut self, logits: &[f32], params: &SamplingParams, draw: f64) -> u32 {
        let mass = f64::from(params.top_p) * self.weigh(logits, params.temperature);
        let mut num_candidates = FIRST_NUCLEUS;
        loop {
            let candidates = top(logits, num_candidates);
            let sorted: Vec<f32> = candidates.iter().map(|candidate| candidate.logit).collect();
            self.weigh(&sorted, params.temperature);
            let kept = match self.nucleus(mass) {
                Some(kept) => kept,
                None if candidates.len() == logits.len() => candidates.len(),
                None => {
                    num_candidates *= 8;
                    continue;
                }
            };
            self.weights.truncate(kept);
            let total = self.weights.chunks(CHUNK).map(sum).sum();
            return candidates[self.draw(total, draw).unwrap_or(0) as usize].id;
        }
    }

    /// How many of the first weights have at least `mass` together; at least one.
    fn nucleus(&self, mass: f64) -> Option<usize> {
        let mut cumulative = 0.0;
        let reached = self.weights.iter().position(|&weight| {
            cumulative += f64::from(weight);
            cumulative >= mass
        });
        reached.map(|index| index + 1)
    }
}

fn sum(chunk: &[f32]) -> f64 {
    let mut lanes = [0.0f64; 8];
    for part in chunk.chunks(lanes.len()) {
        for (lane, &weight) in lanes.iter_mut().zip(part) {
            *lane += f64::from(weight);
        }
    }
    lanes.iter().sum()
}

#[cfg(test)]
mod tests;
