//! From logits to a token: greedy, or a draw after temperature, `top_k` and `top_p`, in this order.

mod exp;
mod logprobs;
mod random;
mod top;

pub(crate) use logprobs::logprobs;
use regatta_core::sampling::SamplingParams;

use exp::exp;
use top::{Candidate, argmax, max, top};

/// Chooses tokens; keeps its working memory.
#[derive(Default)]
pub(crate) struct Sampler {
    /// By token, `exp((logit - max) / temperature)`; 0 for tokens that are cut off.
    weights: Vec<f32>,
    candidates: Vec<Candidate>,
}

/// Weights are summed by chunks of this many, and a draw skips whole chunks.
const CHUNK: usize = 256;

impl Sampler {
    /// Chooses the token at `position` of a sequence.
    pub(crate) fn choose(&mut self, logits: &[f32], params: &SamplingParams, position: u32) -> u32 {
        if params.temperature <= 0.0 {
            return argmax(logits);
        }
        self.weigh(logits, params.temperature);
        let top_k = params.top_k as usize;
        if 0 < top_k && top_k < logits.len() {
            let least = *top(logits, top_k).last().expect("top_k is at least 1");
            self.cut(logits, least);
        }
        if params.top_p < 1.0 {
            self.keep_nucleus(logits, f64::from(params.top_p));
        }
        let draw = random::uniform(params.seed, params.choice, position);
        self.draw(draw).unwrap_or_else(|| argmax(logits))
    }

    fn weigh(&mut self, logits: &[f32], temperature: f32) {
        let (max, scale) = (max(logits), 1.0 / temperature);
        self.weights.clear();
        self.weights.extend(logits.iter().map(|&logit| exp((logit - max) * scale)));
    }

    fn total(&self) -> f64 {
        self.weights.chunks(CHUNK).map(sum).sum()
    }

    /// Cuts off the tokens after `least`.
    fn cut(&mut self, logits: &[f32], least: Candidate) {
        for ((id, weight), &logit) in (0..).zip(&mut self.weights).zip(logits) {
            if logit < least.logit || (logit == least.logit && id > least.id) {
                *weight = 0.0;
            }
        }
    }

    /// Cuts off all but the nucleus (Holtzman et al., 2020): the shortest prefix of the sorted vocabulary that has
    /// `top_p` of the mass. Its end is found by halves, without sorting, so that flat distributions cost no more.
    fn keep_nucleus(&mut self, logits: &[f32], top_p: f64) {
        let total = self.total();
        // Tokens below this weigh less than `1 - top_p` all together: the nucleus does without them.
        let floor = ((1.0 - top_p) * total / logits.len() as f64) as f32;
        let weighty = (0..).zip(&self.weights).filter(|&(_, &weight)| weight > 0.0 && weight >= floor);
        let candidate = |(id, _)| Candidate { id, logit: logits[id as usize] };
        self.candidates.clear();
        self.candidates.extend(weighty.map(candidate));
        let mut open = &mut self.candidates[..];
        let mut mass = top_p * total;
        while open.len() > 1 {
            let middle = open.len() / 2;
            open.select_nth_unstable_by(middle, |a, b| b.cmp(a));
            let (more, less) = open.split_at_mut(middle);
            let weight: f64 = more.iter().map(|one| f64::from(self.weights[one.id as usize])).sum();
            if weight >= mass {
                open = more;
            } else {
                mass -= weight;
                open = less;
            }
        }
        if let Some(&least) = open.first() {
            self.cut(logits, least);
        }
    }

    /// The token at which the cumulative weight passes the share `draw`; `None` where nothing weighs anything.
    fn draw(&self, draw: f64) -> Option<u32> {
        let mut left = draw * self.total();
        let mut last = None;
        for (start, chunk) in (0..).step_by(CHUNK).zip(self.weights.chunks(CHUNK)) {
            let weight = sum(chunk);
            if left >= weight {
                left -= weight;
                continue;
            }
            for (id, &weight) in (start..).zip(chunk).filter(|&(_, &weight)| weight > 0.0) {
                last = Some(id);
                left -= f64::from(weight);
                if left < 0.0 {
                    return last;
                }
            }
        }
        // Rounding can leave a remainder behind the last token.
        last.or_else(|| self.weights.iter().rposition(|&weight| weight > 0.0).map(|id| id as u32))
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
