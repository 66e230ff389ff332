//! The most likely tokens of a vocabulary.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// A token with its score, which is a number: the logit, where nothing else is said. Greater is better; of equal scores
/// the lower id wins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) id: u32,
    pub(super) score: f32,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.id.cmp(&self.id))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

/// The `k` most likely tokens, best first; NaN counts as impossible. One pass over the logits; a heap holds the best
/// so far.
pub(super) fn top(logits: &[f32], k: usize) -> Vec<Candidate> {
    let k = k.min(logits.len());
    if k == 0 {
        return Vec::new();
    }
    let mut heap = BinaryHeap::with_capacity(k + 1);
    let mut worst = f32::NEG_INFINITY;
    for (id, &logit) in (0..).zip(logits) {
        // A later token of the same logit loses to all that are kept.
        if heap.len() < k || logit > worst {
            let score = if logit.is_nan() { f32::NEG_INFINITY } else { logit + 0.0 };
            heap.push(Reverse(Candidate { id, score }));
            if heap.len() > k {
                heap.pop();
            }
            worst = heap.peek().map_or(worst, |least| least.0.score);
        }
    }
    heap.into_sorted_vec().into_iter().map(|reversed| reversed.0).collect()
}

/// The greatest logit; NaN does not count. By lanes, which become vector code.
pub(super) fn max(logits: &[f32]) -> f32 {
    let greater = |a: f32, b: f32| if b > a { b } else { a };
    let (parts, rest) = logits.as_chunks::<16>();
    let mut lanes = [f32::NEG_INFINITY; 16];
    for part in parts {
        for (lane, &logit) in lanes.iter_mut().zip(part) {
            *lane = greater(*lane, logit);
        }
    }
    lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, greater)
}

/// The most likely token; of equals the lowest id.
pub(super) fn argmax(logits: &[f32]) -> u32 {
    const CHUNK: usize = 256;
    let mut best = (f32::NEG_INFINITY, 0);
    for (start, chunk) in (0..).step_by(CHUNK).zip(logits.chunks(CHUNK)) {
        let most = max(chunk);
        if most > best.0 {
            best = (most, start);
        }
    }
    let (most, start) = best;
    let offset = logits[start..].iter().position(|&logit| logit == most).unwrap_or(0);
    (start + offset) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn top_is_a_prefix_of_the_sorted_vocabulary(
            logits in prop::collection::vec(prop_oneof![-3i32..3, Just(i32::MIN)], 1..600),
            k in 0usize..700,
        ) {
            let logits: Vec<f32> =
                logits.iter().map(|&x| if x == i32::MIN { f32::NAN } else { x as f32 }).collect();
            let number = |id: u32| {
                let logit = logits[id as usize];
                if logit.is_nan() { f32::NEG_INFINITY } else { logit }
            };
            let mut sorted: Vec<u32> = (0..logits.len() as u32).collect();
            sorted.sort_by(|&a, &b| number(b).partial_cmp(&number(a)).unwrap().then(a.cmp(&b)));
            let found: Vec<u32> = top(&logits, k).iter().map(|candidate| candidate.id).collect();
            prop_assert_eq!(&found[..], &sorted[..k.min(logits.len())]);
            prop_assert_eq!(argmax(&logits), sorted[0]);
        }
    }
}
