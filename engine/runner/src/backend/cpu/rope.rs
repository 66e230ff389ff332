//! Rotary embedding of queries and keys, and the way of keys and values into the cache.

use std::ops::Range;

use super::isa::Isa;
use super::kv_cache::{CpuKvCache, KvElement, KvLayout, store_head};
use super::memory::Shared;
use super::simd::{Kernel, Simd};
use super::threads::Pool;
use crate::backend::{Batch, KvLayer, KvType, RopePairs};

/// Cosines and sines by position: `[cos; half | sin; half]`, computed once in double precision.
#[derive(Default)]
pub(super) struct RopeTable {
    frequencies: Vec<f32>,
    values: Vec<f32>,
}

impl RopeTable {
    /// Makes sure that `positions` positions are there for these frequencies.
    fn hold(&mut self, frequencies: &[f32], positions: usize) {
        if self.frequencies != frequencies {
            self.frequencies = frequencies.to_vec();
            self.values.clear();
        }
        let width = 2 * frequencies.len();
        for position in self.values.len() / width.max(1)..positions {
            let angles = frequencies.iter().map(|&f| position as f64 * f64::from(f));
            self.values.extend(angles.clone().map(|angle| angle.cos() as f32));
            self.values.extend(angles.map(|angle| angle.sin() as f32));
        }
    }

    fn at(&self, position: usize) -> (&[f32], &[f32]) {
        let half = self.frequencies.len();
        self.values[2 * half * position..][..2 * half].split_at(half)
    }
}

/// Rotates one head.
#[inline(always)]
fn rotate(x: &mut [f32], (cos, sin): (&[f32], &[f32]), pairs: RopePairs) {
    match pairs {
        RopePairs::Halves => {
            let (low, high) = x.split_at_mut(cos.len());
            for ((a, b), (&cos, &sin)) in low.iter_mut().zip(high).zip(cos.iter().zip(sin)) {
                (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
            }
        }
        RopePairs::Adjacent => {
            for (pair, (&cos, &sin)) in x.chunks_exact_mut(2).zip(cos.iter().zip(sin)) {
                (pair[0], pair[1]) = (pair[0] * cos - pair[1] * sin, pair[0] * sin + pair[1] * cos);
            }
        }
    }
}

/// What [`rope_and_store`] works on besides the cache.
pub(super) struct Rope<'a> {
    /// `[tokens, (q_heads + 2 * kv_heads) * head_dim]`.
    pub(super) qkv: &'a mut [f32],
    pub(super) q_heads: usize,
    pub(super) frequencies: &'a [f32],
    pub(super) pairs: RopePairs,
    pub(super) batch: &'a Batch,
}

/// Rotates in place and stores.
pub(super) fn rope_and_store(
    isa: Isa,
    pool: &Pool,
    table: &mut RopeTable,
    rope: Rope<'_>,
    cache: &mut CpuKvCache,
    layer: KvLayer,
) {
    let positions = rope.batch.positions.iter().max().map_or(0, |&last| last as usize + 1);
    table.hold(rope.frequencies, positions);
    match cache.layout.shape.ty {
        KvType::F16 => run::<u16>(isa, pool, table, rope, cache, layer),
        KvType::F32 => run::<f32>(isa, pool, table, rope, cache, layer),
    }
}

/// Tokens below which one thread does it all.
const ALONE: usize = 8;

fn run<E: KvElement>(
    isa: Isa,
    pool: &Pool,
    table: &RopeTable,
    rope: Rope<'_>,
    cache: &mut CpuKvCache,
    layer: KvLayer,
) {
    let layout = cache.layout;
    let (tokens, heads) = (rope.batch.positions.len(), rope.q_heads + layout.shape.kv_heads);
    assert_eq!(rope.qkv.len(), tokens * (heads + layout.shape.kv_heads) * layout.shape.head_dim);
    assert_eq!(2 * rope.frequencies.len(), layout.shape.head_dim);
    let (q_heads, pairs, batch) = (rope.q_heads, rope.pairs, rope.batch);
    let qkv = Shared::new(rope.qkv);
    let elements = Shared::new(cache.layer_mut::<E>(layer.index));
    // Heads, not tokens, are shared out: whatever the block tables say, no two threads write the same place.
    let run = |heads| {
        let group = layer.group;
        isa.run(RopeHeads { table, qkv, q_heads, pairs, batch, group, layout, elements, heads });
    };
    if tokens < ALONE { run(0..heads) } else { pool.run(heads, &|head| run(head..head + 1)) }
}

struct RopeHeads<'a, E> {
    table: &'a RopeTable,
    qkv: Shared<'a, f32>,
    q_heads: usize,
    pairs: RopePairs,
    batch: &'a Batch,
    group: usize,
    layout: KvLayout,
    elements: Shared<'a, E>,
    /// Query heads, then key heads.
    heads: Range<usize>,
}

impl<E: KvElement> Kernel for RopeHeads<'_, E> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (dim, kv_heads) = (self.layout.shape.head_dim, self.layout.shape.kv_heads);
        let width = (self.q_heads + 2 * kv_heads) * dim;
        for (index, sequence) in self.batch.sequences.iter().enumerate() {
            let blocks = self.batch.table(index, self.group);
            for token in sequence.tokens.clone() {
                let position = self.batch.positions[token] as usize;
                for head in self.heads.clone() {
                    let at = token * width + head * dim;
                    // SAFETY: this item's head in this row.
                    let x = unsafe { self.qkv.part(at..at + dim) };
                    rotate(x, self.table.at(position), self.pairs);
                    let Some(kv_head) = head.checked_sub(self.q_heads) else { continue };
                    let value = at + kv_heads * dim;
                    let block = blocks[position / self.layout.shape.block_size] as usize;
                    let place = (block, kv_head, position % self.layout.shape.block_size);
                    // SAFETY: values are only read; the cache's head is this item's.
                    unsafe {
                        let value = self.qkv.part(value..value + dim);
                        store_head(s, self.elements, self.layout, place, x, value);
                    }
                }
            }
        }
    }
}
