//! Causal attention over the paged cache.
//!
//! Rows are (token, query head) pairs of one key/value head, so that what is loaded of keys and values serves a whole
//! group of heads and, in a prompt, several tokens. The context is cut into partitions of 8 groups of positions,
//! counted from position 0: each gives a maximum, a sum and a weighted sum of values, and these are merged in order
//! (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018). Since the cuts depend on nothing but
//! positions, a row's bits do not depend on chunks, batch or threads: a few rows with a long context may have their
//! partitions computed on several threads, and merged afterwards. A window leaves out the groups before it and masks
//! the positions before it in the group where it begins: neither changes the bits of what is seen.

mod partition;

use std::cell::RefCell;
use std::ops::Range;

use super::isa::Isa;
use super::kv_cache::{CpuKvCache, GROUP, KvElement, KvLayout};
use super::memory::Shared;
use super::simd::{Kernel, Simd};
use super::threads::Pool;
use crate::backend::{Batch, BatchSequence, KvLayer, KvType};
use partition::{Group, MAX_ROWS, PARTITION_GROUPS, Tile, Weighted, partition};

/// Items a thread should have at least; where it has fewer, the partitions of a long context are shared out.
const ITEMS_PER_THREAD: usize = 2;
/// Partitions of a context worth sharing out.
const LONG: usize = 3;

thread_local! {
    static TILE: RefCell<Tile> = const { RefCell::new(Tile::NEW) };
}

/// The inputs of [`attention`].
#[derive(Clone, Copy)]
pub(super) struct Attention<'a> {
    /// `[tokens, (q_heads + 2 * kv_heads) * head_dim]`, rotated.
    pub(super) qkv: &'a [f32],
    pub(super) q_heads: usize,
    pub(super) scale: f32,
    pub(super) batch: &'a Batch,
    pub(super) layer: KvLayer,
}

/// Tokens of one sequence and a key/value head.
#[derive(Clone)]
struct Item {
    sequence: usize,
    kv_head: usize,
    tokens: Range<usize>,
    /// Partitions that some of the tokens see.
    partitions: Range<usize>,
}

/// `out` is `[tokens, q_heads * head_dim]`.
pub(super) fn attention(isa: Isa, pool: &Pool, inputs: Attention<'_>, cache: &CpuKvCache, out: &mut [f32]) {
    let index = inputs.layer.index;
    match cache.layout.shape.ty {
        KvType::F16 => run::<u16>(isa, pool, inputs, cache.layout, cache.layer(index), out),
        KvType::F32 => run::<f32>(isa, pool, inputs, cache.layout, cache.layer(index), out),
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
    let (kv_heads, dim) = (layout.shape.kv_heads, layout.shape.head_dim);
    let tokens = inputs.batch.positions.len();
    assert_eq!(inputs.qkv.len(), tokens * (inputs.q_heads + 2 * kv_heads) * dim);
    assert_eq!(out.len(), tokens * inputs.q_heads * dim);
    assert!(kv_heads > 0 && inputs.q_heads.is_multiple_of(kv_heads));
    let items = items(inputs, layout);
    let out = Shared::new(out);
    let longest = items.iter().map(|item| item.partitions.len()).max().unwrap_or(0);
    if longest < LONG || pool.threads() == 1 || items.len() >= ITEMS_PER_THREAD * pool.threads() {
        pool.run(items.len(), &|i| {
            let sink = Sink::Output(out);
            let context = Context { inputs, layout, elements, item: &items[i] };
            let partitions = items[i].partitions.clone();
            TILE.with_borrow_mut(|tile| isa.run(Attend { context, partitions, sink, tile }));
        });
        return;
    }
    let rows = items.iter().map(|item| item.tokens.len()).max().unwrap_or(0) * (inputs.q_heads / kv_heads);
    let mut parts = vec![Weighted::NONE; items.len() * longest * rows];
    let shared = Shared::new(&mut parts);
    pool.run(items.len() * longest, &|i| {
        let item = &items[i / longest];
        let partition = item.partitions.start + i % longest;
        // SAFETY: the rows of one item and partition.
        let sink = Sink::Parts(unsafe { shared.part(i * rows..(i + 1) * rows) });
        let (context, partitions) = (Context { inputs, layout, elements, item }, partition..partition + 1);
        TILE.with_borrow_mut(|tile| isa.run(Attend { context, partitions, sink, tile }));
    });
    for (item, parts) in items.iter().zip(parts.chunks_exact(longest * rows)) {
        isa.run(Merge { inputs, layout, item, parts, rows, out });
    }
}

/// The work, cut up: the last tokens of a prompt have the longest context and go first, so that the rest evens out.
fn items(inputs: Attention<'_>, layout: KvLayout) -> Vec<Item> {
    let kv_heads = layout.shape.kv_heads;
    let tile = (MAX_ROWS / (inputs.q_heads / kv_heads)).max(1);
    let mut items = Vec::new();
    for (sequence, BatchSequence { tokens, .. }) in inputs.batch.sequences.iter().enumerate() {
        for start in tokens.clone().step_by(tile).rev() {
            let tokens = start..tokens.end.min(start + tile);
            let [first, last] =
                [tokens.start, tokens.end - 1].map(|token| inputs.batch.positions[token] as usize);
            let first = group_of(layout, inputs.layer.first_seen(first)) / PARTITION_GROUPS;
            let partitions = first..num_groups(layout, last + 1).div_ceil(PARTITION_GROUPS);
            let item =
                |kv_head| Item { sequence, kv_head, tokens: tokens.clone(), partitions: partitions.clone() };
            items.extend((0..kv_heads).map(item));
        }
    }
    items
}

/// Groups that hold the first `context` positions (at least one).
fn num_groups(layout: KvLayout, context: usize) -> usize {
    group_of(layout, context - 1) + 1
}

/// The group that holds a position.
fn group_of(layout: KvLayout, position: usize) -> usize {
    let block = position / layout.shape.block_size;
    block * layout.groups + (position - block * layout.shape.block_size) / GROUP
}

/// Where an item's rows go.
enum Sink<'a> {
    /// The result.
    Output(Shared<'a, f32>),
    /// What was seen, to be merged.
    Parts(&'a mut [Weighted]),
}

/// An item with what it reads.
#[derive(Clone, Copy)]
struct Context<'a, E> {
    inputs: Attention<'a>,
    layout: KvLayout,
    elements: &'a [E],
    item: &'a Item,
}

/// Some partitions of an item.
struct Attend<'a, E> {
    context: Context<'a, E>,
    partitions: Range<usize>,
    sink: Sink<'a>,
    tile: &'a mut Tile,
}

impl<E: KvElement> Kernel for Attend<'_, E> {
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let Context { inputs, layout, item, .. } = self.context;
        let rows = item.tokens.len() * (inputs.q_heads / layout.shape.kv_heads);
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

impl Attention<'_> {
    /// The token and the query head of row `row` of an item.
    #[inline(always)]
    fn place(&self, layout: KvLayout, item: &Item, row: usize) -> (usize, usize) {
        let group = self.q_heads / layout.shape.kv_heads;
        (item.tokens.start + row / group, item.kv_head * group + row % group)
    }

    /// Writes the result of a row.
    ///
    /// # Safety
    /// No other thread writes this row.
    #[inline(always)]
    unsafe fn write(&self, out: Shared<'_, f32>, dim: usize, (token, head): (usize, usize), seen: &Weighted) {
        let at = (token * self.q_heads + head) * dim;
        // SAFETY: exclusive by the caller's contract.
        let out = unsafe { out.part(at..at + dim) };
        let inverse = 1.0 / seen.sum;
        out.iter_mut().zip(&seen.values).for_each(|(out, &value)| *out = value * inverse);
    }
}

impl<E: KvElement> Attend<'_, E> {
    /// Computes rows `first .. first + R` of the item; gives `R`.
    #[inline(always)]
    fn rows<S: Simd, const R: usize, const W: usize>(&mut self, s: S, first: usize) -> usize {
        let Context { inputs, layout, item, .. } = self.context;
        let dim = layout.shape.head_dim;
        let places: [_; R] = std::array::from_fn(|r| inputs.place(layout, item, first + r));
        let seen = places.map(|(token, _)| {
            let position = inputs.batch.positions[token] as usize;
            inputs.layer.first_seen(position)..position + 1
        });
        // Tokens are in order of position.
        let (first_seen, longest) = (seen[0].start, seen[R - 1].end);

        let width = (inputs.q_heads + 2 * layout.shape.kv_heads) * dim;
        for (r, &(token, head)) in places.iter().enumerate() {
            let row = &inputs.qkv[token * width + head * dim..][..dim];
            for (query, &x) in self.tile.queries.chunks_exact_mut(R).zip(row) {
                query[r] = x * inputs.scale;
            }
            self.tile.total[r].sum = 0.0;
        }

        let all = group_of(layout, first_seen)..num_groups(layout, longest);
        for index in self.partitions.clone() {
            let start = (index * PARTITION_GROUPS).max(all.start);
            let end = ((index + 1) * PARTITION_GROUPS).min(all.end);
            if start >= end {
                continue;
            }
            let num = end - start;
            let groups: [Group<E>; PARTITION_GROUPS] =
                std::array::from_fn(|i| self.context.group(start + i.min(num - 1), longest));
            partition::<S, E, R, W>(s, layout, &seen, &groups[..num], self.tile);
            for (total, seen) in self.tile.total[..R].iter_mut().zip(&self.tile.seen) {
                total.merge(s, layout.padded_dim, seen);
            }
        }
        for (r, (&place, seen)) in places.iter().zip(&self.tile.total).enumerate() {
            match &mut self.sink {
                // SAFETY: a row of this item.
                Sink::Output(out) => unsafe { inputs.write(*out, dim, place, seen) },
                Sink::Parts(parts) => parts[first + r] = *seen,
            }
        }
        R
    }
}

impl<E: KvElement> Context<'_, E> {
    /// Group `index` of the sequence's context.
    #[inline(always)]
    fn group(&self, index: usize, longest: usize) -> Group<E> {
        let layout = self.layout;
        let (block, group) = (index / layout.groups, index % layout.groups);
        let table = self.inputs.batch.table(self.item.sequence, self.inputs.layer.group);
        let head = &self.elements[layout.head_start(table[block] as usize, self.item.kv_head)..]
            [..layout.head_len()];
        let (keys, values) = head.split_at(layout.keys_len());
        let start = block * layout.shape.block_size + group * GROUP;
        Group {
            keys: keys[group * layout.shape.head_dim * GROUP..].as_ptr(),
            values: values[group * GROUP * layout.padded_dim..].as_ptr(),
            start,
            len: layout.group_len(group).min(longest - start),
        }
    }
}

/// Merges what an item's partitions gave.
struct Merge<'a> {
    inputs: Attention<'a>,
    layout: KvLayout,
    item: &'a Item,
    /// `[partitions, rows]`.
    parts: &'a [Weighted],
    rows: usize,
    out: Shared<'a, f32>,
}

impl Kernel for Merge<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for row in 0..self.item.tokens.len() * (self.inputs.q_heads / self.layout.shape.kv_heads) {
            let mut total = Weighted::NONE;
            for parts in self.parts.chunks_exact(self.rows) {
                total.merge(s, self.layout.padded_dim, &parts[row]);
            }
            let place = self.inputs.place(self.layout, self.item, row);
            // SAFETY: called on one thread.
            unsafe { self.inputs.write(self.out, self.layout.shape.head_dim, place, &total) };
        }
    }
}
