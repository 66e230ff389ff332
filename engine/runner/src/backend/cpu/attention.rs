//! Causal attention over the paged cache.
//!
//! Rows are (token, query head) pairs of one key/value head, so that what is loaded of keys and values serves a whole
//! group of heads and, in a prompt, several tokens. The context is cut into partitions of [`PARTITION`] positions,
//! counted from position 0: each gives a maximum, a sum and a weighted sum of values, and these are merged in order
//! (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018). Since the cuts depend on nothing but
//! positions, a row's bits do not depend on chunks, batch or threads.

use super::isa::Isa;
use super::kv_cache::{CpuKvCache, GROUP, KvElement, KvLayout, MAX_HEAD_DIM};
use super::memory::Shared;
use super::simd::{Kernel, Simd, math};
use super::threads::Pool;
use crate::backend::{Batch, BatchSequence, KvType};

/// Groups of a partition.
const PARTITION_GROUPS: usize = 8;
/// Places for positions in a partition.
const PARTITION: usize = PARTITION_GROUPS * GROUP;
/// Most rows that a kernel takes at once.
const MAX_ROWS: usize = 12;

/// The inputs of [`attention`].
#[derive(Clone, Copy)]
pub(super) struct Attention<'a> {
    /// `[tokens, (q_heads + 2 * kv_heads) * head_dim]`, rotated.
    pub(super) qkv: &'a [f32],
    pub(super) q_heads: usize,
    pub(super) scale: f32,
    pub(super) batch: &'a Batch,
}

/// Tokens of one sequence and a key/value head: what one item computes.
#[derive(Clone)]
struct Item {
    sequence: usize,
    kv_head: usize,
    tokens: std::ops::Range<usize>,
}

/// `out` is `[tokens, q_heads * head_dim]`.
pub(super) fn attention(
    isa: Isa,
    pool: &Pool,
    inputs: Attention<'_>,
    cache: &CpuKvCache,
    layer: usize,
    out: &mut [f32],
) {
    match cache.layout.shape.ty {
        KvType::F16 => run::<u16>(isa, pool, inputs, cache.layout, cache.layer(layer), out),
        KvType::F32 => run::<f32>(isa, pool, inputs, cache.layout, cache.layer(layer), out),
    }
}

fn run<E: KvElement>(
    isa: Isa,
    pool: &Pool,
    inputs: Attention<'_>,
    layout: KvLayout,
    elements: &[E],
    out: &mut [f32],
) {
    let kv_heads = layout.shape.kv_heads;
    let tokens = inputs.batch.positions.len();
    assert_eq!(inputs.qkv.len(), tokens * (inputs.q_heads + 2 * kv_heads) * layout.shape.head_dim);
    assert_eq!(out.len(), tokens * inputs.q_heads * layout.shape.head_dim);
    assert!(kv_heads > 0 && inputs.q_heads.is_multiple_of(kv_heads));
    let tile = (MAX_ROWS / (inputs.q_heads / kv_heads)).max(1);
    let mut items = Vec::new();
    // The last tokens of a prompt have the longest context: they go first, so that the rest evens out.
    for (sequence, BatchSequence { tokens, .. }) in inputs.batch.sequences.iter().enumerate() {
        for start in tokens.clone().step_by(tile).rev() {
            let tokens = start..tokens.end.min(start + tile);
            items.extend((0..kv_heads).map(|kv_head| Item { sequence, kv_head, tokens: tokens.clone() }));
        }
    }
    let out = Shared::new(out);
    pool.run(items.len(), &|item| {
        isa.run(Attend { inputs, layout, elements, out, item: items[item].clone() });
    });
}

struct Attend<'a, E> {
    inputs: Attention<'a>,
    layout: KvLayout,
    elements: &'a [E],
    out: Shared<'a, f32>,
    item: Item,
}

impl<E: KvElement> Kernel for Attend<'_, E> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let group = self.inputs.q_heads / self.layout.shape.kv_heads;
        let rows = self.item.tokens.len() * group;
        let mut r = 0;
        while r < rows {
            // Rows at once, and groups of positions (or vectors of a head) at once: about 12 sums in registers.
            r += match rows - r {
                12.. if S::QUERY_TILE >= 12 => self.rows::<S, 12, 1>(s, r),
                8.. if S::QUERY_TILE >= 8 => self.rows::<S, 8, 1>(s, r),
                6.. if S::QUERY_TILE >= 6 => self.rows::<S, 6, 2>(s, r),
                4.. => self.rows::<S, 4, 2>(s, r),
                3 => self.rows::<S, 3, 4>(s, r),
                2 => self.rows::<S, 2, 4>(s, r),
                _ => self.rows::<S, 1, 4>(s, r),
            };
        }
    }
}

/// A group of positions of the context.
#[derive(Clone, Copy)]
struct Group<E> {
    keys: *const E,
    values: *const E,
    /// Its first position.
    start: usize,
    /// Positions in it, those beyond the last row's own left out.
    len: usize,
}

/// The state of `R` rows: softmax of what has been seen of the context.
struct State<const R: usize> {
    greatest: [f32; R],
    sum: [f32; R],
    values: [[f32; MAX_HEAD_DIM]; R],
}

impl<E: KvElement> Attend<'_, E> {
    /// Computes rows `first .. first + R` of the item; gives `R`.
    #[inline(always)]
    fn rows<S: Simd, const R: usize, const W: usize>(&self, s: S, first: usize) -> usize {
        let dim = self.layout.shape.head_dim;
        let group = self.inputs.q_heads / self.layout.shape.kv_heads;
        let place: [(usize, usize); R] = std::array::from_fn(|r| {
            let row = first + r;
            (self.item.tokens.start + row / group, self.item.kv_head * group + row % group)
        });
        let limits = place.map(|(token, _)| self.inputs.batch.positions[token] as usize + 1);
        let context = limits.into_iter().max().unwrap_or(0);

        let width = (self.inputs.q_heads + 2 * self.layout.shape.kv_heads) * dim;
        let mut queries = [[0.0; R]; MAX_HEAD_DIM];
        for (r, &(token, head)) in place.iter().enumerate() {
            let row = &self.inputs.qkv[token * width + head * dim..][..dim];
            for (query, &x) in queries.iter_mut().zip(row) {
                query[r] = x * self.inputs.scale;
            }
        }

        let mut state =
            State { greatest: [f32::NEG_INFINITY; R], sum: [0.0; R], values: [[0.0; MAX_HEAD_DIM]; R] };
        let per_block = self.layout.groups;
        let blocks = context.div_ceil(self.layout.shape.block_size);
        let all = (blocks - 1) * per_block
            + (context - (blocks - 1) * self.layout.shape.block_size).div_ceil(GROUP);
        for start in (0..all).step_by(PARTITION_GROUPS) {
            let num = (all - start).min(PARTITION_GROUPS);
            let groups: [Group<E>; PARTITION_GROUPS] =
                std::array::from_fn(|i| self.group(start + i.min(num - 1), context));
            partition::<S, E, R, W>(s, self.layout, &queries, &limits, &groups[..num], &mut state);
        }

        for (r, &(token, head)) in place.iter().enumerate() {
            let at = (token * self.inputs.q_heads + head) * dim;
            // SAFETY: a row of this item.
            let out = unsafe { self.out.part(at..at + dim) };
            let inverse = 1.0 / state.sum[r];
            out.iter_mut().zip(&state.values[r]).for_each(|(out, &value)| *out = value * inverse);
        }
        R
    }

    /// Group `index` of the sequence's context.
    #[inline(always)]
    fn group(&self, index: usize, context: usize) -> Group<E> {
        let layout = self.layout;
        let (block, group) = (index / layout.groups, index % layout.groups);
        let table =
            &self.inputs.batch.block_tables[self.inputs.batch.sequences[self.item.sequence].table.clone()];
        let head = &self.elements[layout.head_start(table[block] as usize, self.item.kv_head)..]
            [..layout.head_len()];
        let (keys, values) = head.split_at(layout.keys_len());
        let start = block * layout.shape.block_size + group * GROUP;
        Group {
            keys: keys[group * layout.shape.head_dim * GROUP..].as_ptr(),
            values: values[group * GROUP * layout.padded_dim..].as_ptr(),
            start,
            len: layout.group_len(group).min(context - start),
        }
    }
}

/// Scores, softmax and weighted values of one partition, merged into `state`.
#[inline(always)]
fn partition<S: Simd, E: KvElement, const R: usize, const W: usize>(
    s: S,
    layout: KvLayout,
    queries: &[[f32; R]; MAX_HEAD_DIM],
    limits: &[usize; R],
    groups: &[Group<E>],
    state: &mut State<R>,
) {
    let mut weights = [[0.0f32; PARTITION]; R];
    let mut done = 0;
    while done < groups.len() {
        if groups.len() - done >= W {
            scores::<S, E, R, W>(s, layout, queries, limits, &groups[done..], done, &mut weights);
            done += W;
        } else {
            scores::<S, E, R, 1>(s, layout, queries, limits, &groups[done..], done, &mut weights);
            done += 1;
        }
    }

    let mut rescale = [0.0; R];
    for r in 0..R {
        if limits[r] > groups[0].start {
            rescale[r] = softmax(
                s,
                &mut weights[r][..groups.len() * GROUP],
                &mut state.greatest[r],
                &mut state.sum[r],
            );
        } else {
            // Nothing here is in this row's past.
            weights[r] = [0.0; PARTITION];
            rescale[r] = 1.0;
        }
    }

    let vectors = layout.padded_dim / S::LANES;
    let mut vector = 0;
    while vector < vectors {
        if vectors - vector >= W {
            weighted_values::<S, E, R, W>(s, layout, groups, &weights, &rescale, vector, state);
            vector += W;
        } else {
            weighted_values::<S, E, R, 1>(s, layout, groups, &weights, &rescale, vector, state);
            vector += 1;
        }
    }
}

/// Scores of `W` groups, masked, into `weights` from group `done` on.
#[inline(always)]
fn scores<S: Simd, E: KvElement, const R: usize, const W: usize>(
    s: S,
    layout: KvLayout,
    queries: &[[f32; R]; MAX_HEAD_DIM],
    limits: &[usize; R],
    groups: &[Group<E>],
    done: usize,
    weights: &mut [[f32; PARTITION]; R],
) {
    let keys: [*const E; W] = std::array::from_fn(|w| groups[w].keys);
    // Groups lie anywhere in memory: their values, and the keys that come next, are asked for while these are read.
    let values: [*const E; W] = std::array::from_fn(|w| groups[w].values);
    let next: [*const E; W] = std::array::from_fn(|w| groups[(W + w).min(groups.len() - 1)].keys);
    for lane in (0..GROUP).step_by(S::LANES) {
        let mut sums = [[s.splat(0.0); W]; R];
        for (d, query) in queries.iter().enumerate().take(layout.shape.head_dim) {
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
                let seen = limits[r].saturating_sub(groups[w].start).min(groups[w].len);
                let score = s.first(sums[r][w], seen as isize - lane as isize, f32::NEG_INFINITY);
                let at = (done + w) * GROUP + lane;
                // SAFETY: `at + LANES` is within a partition.
                unsafe { s.store(weights[r][at..at + S::LANES].as_mut_ptr(), score) };
            }
        }
    }
}

/// Turns scores into `e^(score - greatest so far)`, adds them to `sum`, and gives the factor for what came before.
#[inline(always)]
fn softmax<S: Simd>(s: S, weights: &mut [f32], greatest: &mut f32, sum: &mut f32) -> f32 {
    let mut most = s.splat(*greatest);
    for chunk in weights.chunks_exact(S::LANES) {
        // SAFETY: a chunk has `LANES` floats.
        most = s.max(most, unsafe { s.load(chunk.as_ptr()) });
    }
    let most = s.max_lane(most);
    let mut sums = s.splat(0.0);
    for chunk in weights.chunks_exact_mut(S::LANES) {
        // SAFETY: as above.
        unsafe {
            let weight = math::exp(s, s.sub(s.load(chunk.as_ptr()), s.splat(most)));
            s.store(chunk.as_mut_ptr(), weight);
            sums = s.add(sums, weight);
        }
    }
    let mut factor = [0.0; GROUP];
    // SAFETY: a vector has at most 16 lanes.
    unsafe { s.store(factor.as_mut_ptr(), math::exp(s, s.splat(*greatest - most))) };
    *greatest = most;
    *sum = *sum * factor[0] + s.sum(sums);
    factor[0]
}

/// `state.values = state.values * rescale + weights * values`, for `W` vectors of the head.
#[inline(always)]
fn weighted_values<S: Simd, E: KvElement, const R: usize, const W: usize>(
    s: S,
    layout: KvLayout,
    groups: &[Group<E>],
    weights: &[[f32; PARTITION]; R],
    rescale: &[f32; R],
    vector: usize,
    state: &mut State<R>,
) {
    let mut sums: [[S::F; W]; R] = std::array::from_fn(|r| {
        std::array::from_fn(|w| {
            let values = &state.values[r][(vector + w) * S::LANES..][..S::LANES];
            // SAFETY: `LANES` floats.
            s.mul(unsafe { s.load(values.as_ptr()) }, s.splat(rescale[r]))
        })
    });
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
            let values = &mut state.values[r][(vector + w) * S::LANES..][..S::LANES];
            // SAFETY: `LANES` floats.
            unsafe { s.store(values.as_mut_ptr(), sums[r][w]) };
        }
    }
}
