//! One partition of the context for some rows: scores, softmax, weighted values; and how partitions are merged.

use std::ops::Range;

use super::super::kv_cache::{GROUP, KvElement, KvLayout, MAX_HEAD_DIM};
use super::super::simd::{Simd, math};

/// Groups of a partition.
pub(super) const PARTITION_GROUPS: usize = 8;
/// Most rows that a kernel takes at once.
pub(super) const MAX_ROWS: usize = 12;
/// Places for positions in a partition.
const PARTITION: usize = PARTITION_GROUPS * GROUP;

/// A group of positions of the context.
#[derive(Clone, Copy)]
pub(super) struct Group<E> {
    pub(super) keys: *const E,
    pub(super) values: *const E,
    /// Its first position.
    pub(super) start: usize,
    /// Positions in it, those beyond the last row's own left out.
    pub(super) len: usize,
}

/// Softmax-weighted values of a part of the context, for one row.
#[derive(Clone, Copy)]
pub(super) struct Weighted {
    /// The greatest score.
    pub(super) greatest: f32,
    /// Sum of `e^(score - greatest)`; 0 where nothing was seen.
    pub(super) sum: f32,
    /// Sum of the values, weighted by the same.
    pub(super) values: [f32; MAX_HEAD_DIM],
}

impl Weighted {
    /// Nothing seen.
    pub(super) const NONE: Self = Self { greatest: f32::NEG_INFINITY, sum: 0.0, values: [0.0; MAX_HEAD_DIM] };

    /// Adds the part of the context that follows.
    #[inline(always)]
    pub(super) fn merge<S: Simd>(&mut self, s: S, padded_dim: usize, next: &Self) {
        if next.sum == 0.0 {
            return;
        }
        if self.sum == 0.0 {
            (self.greatest, self.sum) = (next.greatest, next.sum);
            self.values[..padded_dim].copy_from_slice(&next.values[..padded_dim]);
            return;
        }
        let greatest = if self.greatest > next.greatest { self.greatest } else { next.greatest };
        let (mine, theirs) = (exp(s, self.greatest - greatest), exp(s, next.greatest - greatest));
        self.greatest = greatest;
        self.sum = self.sum * mine + next.sum * theirs;
        for at in (0..padded_dim).step_by(S::LANES) {
            let (values, next) = (&mut self.values[at..at + S::LANES], &next.values[at..at + S::LANES]);
            // SAFETY: `LANES` floats each.
            unsafe {
                let scaled = s.mul(s.load(values.as_ptr()), s.splat(mine));
                s.store(values.as_mut_ptr(), s.fma(s.load(next.as_ptr()), s.splat(theirs), scaled));
            }
        }
    }
}

/// `e^x` of one number, as for the lanes of a vector.
#[inline(always)]
fn exp<S: Simd>(s: S, x: f32) -> f32 {
    let mut lanes = [0.0; GROUP];
    // SAFETY: a vector has at most 16 lanes.
    unsafe { s.store(lanes.as_mut_ptr(), math::exp(s, s.splat(x))) };
    lanes[0]
}

/// Working memory of a thread: too large to be set to zero again and again.
pub(super) struct Tile {
    /// `[head_dim][rows]`.
    pub(super) queries: [f32; MAX_HEAD_DIM * MAX_ROWS],
    /// Scores, then what they weigh.
    weights: [[f32; PARTITION]; MAX_ROWS],
    /// What the rows see in a partition.
    pub(super) seen: [Weighted; MAX_ROWS],
    /// What they have seen so far.
    pub(super) total: [Weighted; MAX_ROWS],
}

impl Tile {
    /// Blank.
    pub(super) const NEW: Self = Self {
        queries: [0.0; MAX_HEAD_DIM * MAX_ROWS],
        weights: [[0.0; PARTITION]; MAX_ROWS],
        seen: [Weighted::NONE; MAX_ROWS],
        total: [Weighted::NONE; MAX_ROWS],
    };
}

/// What the first `R` rows of a tile see in one partition, each the positions in its range of `ranges`; `W` groups, or
/// vectors of the head, are worked on at once.
#[inline(always)]
pub(super) fn partition<S: Simd, E: KvElement, const R: usize, const W: usize>(
    s: S,
    layout: KvLayout,
    ranges: &[Range<usize>; R],
    groups: &[Group<E>],
    tile: &mut Tile,
) {
    let Tile { queries, weights, seen, .. } = tile;
    let queries = &queries.as_chunks::<R>().0[..layout.shape.head_dim];
    let mut done = 0;
    while done < groups.len() {
        if groups.len() - done >= W {
            scores::<S, E, R, W>(s, queries, ranges, &groups[done..], done, weights);
            done += W;
        } else {
            scores::<S, E, R, 1>(s, queries, ranges, &groups[done..], done, weights);
            done += 1;
        }
    }
    let last = groups[groups.len() - 1];
    for ((seen, weights), range) in seen.iter_mut().zip(weights.iter_mut()).zip(ranges) {
        if range.end > groups[0].start && range.start < last.start + last.len {
            if range.start > groups[0].start {
                mask_before(range.start, groups, weights);
            }
            (seen.greatest, seen.sum) = softmax(s, &mut weights[..groups.len() * GROUP]);
        } else {
            // Nothing here is in this row's past, or in its window.
            weights[..groups.len() * GROUP].fill(0.0);
            (seen.greatest, seen.sum) = (f32::NEG_INFINITY, 0.0);
        }
    }
    let vectors = layout.padded_dim / S::LANES;
    let mut vector = 0;
    while vector < vectors {
        if vectors - vector >= W {
            weighted_values::<S, E, R, W>(s, layout, groups, weights, vector, seen);
            vector += W;
        } else {
            weighted_values::<S, E, R, 1>(s, layout, groups, weights, vector, seen);
            vector += 1;
        }
    }
}

/// Scores of `W` groups, masked, into `weights` from group `done` on.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // iterators would put the arrays of vectors in memory
fn scores<S: Simd, E: KvElement, const R: usize, const W: usize>(
    s: S,
    queries: &[[f32; R]],
    ranges: &[Range<usize>; R],
    groups: &[Group<E>],
    done: usize,
    weights: &mut [[f32; PARTITION]; MAX_ROWS],
) {
    let keys: [*const E; W] = std::array::from_fn(|w| groups[w].keys);
    // Groups lie anywhere in memory: their values, and the keys that come next, are asked for while these are read.
    let values: [*const E; W] = std::array::from_fn(|w| groups[w].values);
    let next: [*const E; W] = std::array::from_fn(|w| groups[(W + w).min(groups.len() - 1)].keys);
    for lane in (0..GROUP).step_by(S::LANES) {
        let mut sums = [[s.splat(0.0); W]; R];
        for (d, query) in queries.iter().enumerate() {
            if lane == 0 {
                for w in 0..W {
                    s.prefetch(values[w].wrapping_add(d * GROUP));
                    s.prefetch(next[w].wrapping_add(d * GROUP));
                }
            }
            // SAFETY: element `d` of a group's keys, 16 positions.
            let k = keys.map(|keys| unsafe { E::load(s, keys.add(d * GROUP + lane)) });
            for r in 0..R {
                for w in 0..W {
                    sums[r][w] = s.fma(s.splat(query[r]), k[w], sums[r][w]);
                }
            }
        }
        for r in 0..R {
            for w in 0..W {
                let seen = ranges[r].end.saturating_sub(groups[w].start).min(groups[w].len);
                let score = s.first(sums[r][w], seen as isize - lane as isize, f32::NEG_INFINITY);
                let at = (done + w) * GROUP + lane;
                // SAFETY: a vector's floats.
                unsafe { s.store(weights[r][at..at + S::LANES].as_mut_ptr(), score) };
            }
        }
    }
}

/// Masks the scores of positions before `first`.
#[inline(always)]
fn mask_before<E>(first: usize, groups: &[Group<E>], weights: &mut [f32; PARTITION]) {
    for (group, weights) in groups.iter().zip(weights.chunks_exact_mut(GROUP)) {
        let num_out = first.saturating_sub(group.start).min(GROUP);
        weights[..num_out].fill(f32::NEG_INFINITY);
    }
}

/// Turns scores into `e^(score - greatest)`; gives the greatest score and the sum.
#[inline(always)]
fn softmax<S: Simd>(s: S, weights: &mut [f32]) -> (f32, f32) {
    let mut greatest = s.splat(f32::NEG_INFINITY);
    for chunk in weights.chunks_exact(S::LANES) {
        // SAFETY: a chunk has `LANES` floats.
        greatest = s.max(greatest, unsafe { s.load(chunk.as_ptr()) });
    }
    let greatest = s.max_lane(greatest);
    let mut sums = s.splat(0.0);
    for chunk in weights.chunks_exact_mut(S::LANES) {
        // SAFETY: as above.
        unsafe {
            let weight = math::exp(s, s.sub(s.load(chunk.as_ptr()), s.splat(greatest)));
            s.store(chunk.as_mut_ptr(), weight);
            sums = s.add(sums, weight);
        }
    }
    (greatest, s.sum(sums))
}

/// `seen.values = weights * values`, for `W` vectors of the head.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // iterators would put the arrays of vectors in memory
fn weighted_values<S: Simd, E: KvElement, const R: usize, const W: usize>(
    s: S,
    layout: KvLayout,
    groups: &[Group<E>],
    weights: &[[f32; PARTITION]; MAX_ROWS],
    vector: usize,
    seen: &mut [Weighted; MAX_ROWS],
) {
    let mut sums = [[s.splat(0.0); W]; R];
    for (g, group) in groups.iter().enumerate() {
        for position in 0..group.len {
            // SAFETY: a position of the group, vectors of its padded head.
            let v: [S::F; W] = std::array::from_fn(|w| unsafe {
                E::load(s, group.values.add(position * layout.padded_dim + (vector + w) * S::LANES))
            });
            for r in 0..R {
                // SAFETY: `g` is within a partition.
                let weight = s.splat(unsafe { *weights[r].get_unchecked(g * GROUP + position) });
                for w in 0..W {
                    sums[r][w] = s.fma(weight, v[w], sums[r][w]);
                }
            }
        }
    }
    for r in 0..R {
        for w in 0..W {
            let values = &mut seen[r].values[(vector + w) * S::LANES..][..S::LANES];
            // SAFETY: `LANES` floats.
            unsafe { s.store(values.as_mut_ptr(), sums[r][w]) };
        }
    }
}
