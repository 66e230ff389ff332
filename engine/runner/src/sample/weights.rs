//! Temperature, cuts and the draw.

use super::Place;
use super::exp::exp;
use super::random;
use super::top::{Candidate, argmax, max, top};

/// Unnormalised probabilities of a vocabulary.
#[derive(Default)]
pub(super) struct Weights {
    /// By token, `exp((logit - max) / temperature)`; 0 for tokens that are cut off.
    weights: Vec<f32>,
    candidates: Vec<Candidate>,
}

/// Weights are summed by chunks of this many, and a draw skips whole chunks.
const CHUNK: usize = 256;

impl Weights {
    /// Draws a token. The weights stay as they were for the draw.
    pub(super) fn draw(&mut self, logits: &[f32], place: Place<'_>) -> u32 {
        let params = place.params;
        let (max, scale) = (max(logits), 1.0 / params.temperature);
        self.weights.clear();
        self.weights.extend(logits.iter().map(|&logit| exp((logit - max) * scale)));
        if params.min_p > 0.0 {
            // The most likely token weighs 1.
            self.weights.iter_mut().filter(|weight| **weight < params.min_p).for_each(|weight| *weight = 0.0);
        }
        let top_k = params.top_k as usize;
        if 0 < top_k && top_k < logits.len() {
            let least = *top(logits, top_k).last().expect("top_k is at least 1");
            self.cut(|id| logits[id as usize], least);
        }
        if params.top_p < 1.0 {
            self.keep_nucleus(logits, f64::from(params.top_p));
        }
        if params.typical_p < 1.0 {
            self.keep_typical(|id| (logits[id as usize] - max) * scale, f64::from(params.typical_p));
        }
        let draw = random::uniform(params.seed, params.choice, place.position);
        self.at(draw).unwrap_or_else(|| argmax(logits))
    }

    /// The logits of the latest draw: over temperature, and without the tokens that could not be drawn.
    pub(super) fn processed(&self, logits: &[f32], temperature: f32, out: &mut Vec<f32>) {
        out.clear();
        out.extend(
            logits
                .iter()
                .zip(&self.weights)
                .map(|(&logit, &weight)| if weight > 0.0 { logit / temperature } else { f32::NEG_INFINITY }),
        );
    }

    fn total(&self) -> f64 {
        self.weights.chunks(CHUNK).map(sum).sum()
    }

    /// Cuts off the tokens that come after `least` in the order of `score`.
    fn cut(&mut self, score: impl Fn(u32) -> f32, least: Candidate) {
        for (id, weight) in (0..).zip(&mut self.weights).filter(|(_, weight)| **weight > 0.0) {
            let score = score(id);
            if score < least.score || (score == least.score && id > least.id) {
                *weight = 0.0;
            }
        }
    }

    /// Cuts off all but the nucleus (Holtzman et al., 2020): the shortest prefix of the sorted vocabulary that has
    /// `top_p` of the mass.
    fn keep_nucleus(&mut self, logits: &[f32], top_p: f64) {
        let total = self.total();
        // Tokens below this weigh less than `1 - top_p` all together: the nucleus does without them.
        let floor = ((1.0 - top_p) * total / logits.len() as f64) as f32;
        self.keep_mass(|id| logits[id as usize], floor, top_p * total);
    }

    /// Cuts off all but the locally typical tokens (Meister et al., 2023): the fewest with `typical_p` of the mass
    /// whose information is closest to the entropy. `log_weight` is the logarithm of a token's weight.
    fn keep_typical(&mut self, log_weight: impl Fn(u32) -> f32, typical_p: f64) {
        let total = self.total();
        let log_total = total.ln();
        let present = (0..).zip(&self.weights).filter(|&(_, &weight)| weight > 0.0);
        let information = |id| log_total - f64::from(log_weight(id));
        let entropy: f64 = present.map(|(id, &weight)| f64::from(weight) / total * information(id)).sum();
        self.keep_mass(|id| -(information(id) - entropy).abs() as f32, 0.0, typical_p * total);
    }

    /// Keeps the best tokens by `score` that weigh `mass` together; those lighter than `floor` are not looked at. The
    /// end is found by halves, without sorting, so that flat distributions cost no more.
    fn keep_mass(&mut self, score: impl Fn(u32) -> f32, floor: f32, mut mass: f64) {
        let weighty = (0..).zip(&self.weights).filter(|&(_, &weight)| weight > 0.0 && weight >= floor);
        self.candidates.clear();
        self.candidates.extend(weighty.map(|(id, _)| Candidate { id, score: score(id) }));
        let mut open = &mut self.candidates[..];
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
            self.cut(score, least);
        }
    }

    /// The token at which the cumulative weight passes the share `draw`; `None` where nothing weighs anything.
    fn at(&self, draw: f64) -> Option<u32> {
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
