use proptest::prelude::*;

use super::*;
use crate::backend::{Batch, BatchSequence, KvLayer, KvShape, KvType, RopePairs};

/// A sequence's inputs, before rotation, and its blocks.
#[derive(Clone)]
struct Sequence {
    qkv: Vec<f32>,
    tokens: usize,
    table: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Heads {
    q: usize,
    kv: usize,
    dim: usize,
}

impl Heads {
    fn width(self) -> usize {
        (self.q + 2 * self.kv) * self.dim
    }
}

fn shape(heads: Heads, block_size: usize, num_blocks: usize, ty: KvType) -> KvShape {
    KvShape { layers: 2, kv_heads: heads.kv, head_dim: heads.dim, num_blocks, block_size, ty }
}

fn frequencies(dim: usize) -> Vec<f32> {
    (0..dim / 2).map(|i| 10_000f32.powf(-2.0 * i as f32 / dim as f32)).collect()
}

/// Sequences of these lengths whose blocks are dealt out in a random order.
fn sequences(
    random: &mut Random,
    heads: Heads,
    block_size: usize,
    lengths: &[usize],
) -> (Vec<Sequence>, usize) {
    let num_blocks: usize = lengths.iter().map(|length| length.div_ceil(block_size)).sum();
    let mut free: Vec<u32> = (0..num_blocks as u32).collect();
    for i in (1..free.len()).rev() {
        free.swap(i, random.below(i + 1));
    }
    let all = lengths
        .iter()
        .map(|&tokens| Sequence {
            qkv: random.floats(tokens * heads.width()),
            tokens,
            table: free.split_off(free.len() - tokens.div_ceil(block_size)),
        })
        .collect();
    (all, num_blocks)
}

/// A layer, with another before it.
fn layer(window: Option<usize>) -> KvLayer {
    KvLayer { group: 0, index: 1, window }
}

/// Runs the steps, each a list of (sequence, tokens computed in it), and gives each sequence's outputs. Blocks before
/// the window are no blocks.
fn run(
    backend: &CpuBackend,
    heads: Heads,
    shape: KvShape,
    (pairs, layer): (RopePairs, KvLayer),
    sequences: &[Sequence],
    steps: &[Vec<(usize, usize)>],
) -> Vec<Vec<f32>> {
    let mut cache = backend.kv_cache(shape).unwrap();
    let mut done = vec![0; sequences.len()];
    let mut results = vec![Vec::new(); sequences.len()];
    for step in steps {
        let (mut batch, mut values) = (Batch::default(), Vec::new());
        for &(index, tokens) in step {
            let sequence = &sequences[index];
            let (start, table) = (batch.positions.len(), batch.block_tables.len());
            batch.positions.extend((done[index]..done[index] + tokens).map(|position| position as u32));
            let first_seen = layer.first_seen(done[index]) / shape.block_size;
            batch.block_tables.extend(std::iter::repeat_n(u32::MAX, first_seen));
            batch.block_tables.extend(&sequence.table[first_seen..]);
            batch.sequences.push(BatchSequence {
                tokens: start..batch.positions.len(),
                table: table..batch.block_tables.len(),
            });
            values.extend(&sequence.qkv[done[index] * heads.width()..(done[index] + tokens) * heads.width()]);
            done[index] += tokens;
        }
        let rows = batch.positions.len();
        let mut qkv = buffer(backend, rows, &values);
        let mut out = backend.alloc(rows, heads.q * heads.dim).unwrap();
        backend.rope_and_store(&mut qkv, heads.q, &frequencies(heads.dim), pairs, &batch, &mut cache, layer);
        backend.attention_into(&qkv, heads.q, 0.3, &batch, &cache, layer, &mut out);
        for (&(index, _), sequence) in step.iter().zip(&batch.sequences) {
            let width = heads.q * heads.dim;
            let range = sequence.tokens.start * width..sequence.tokens.end * width;
            results[index].extend(&out.values()[range]);
        }
    }
    results
}

/// Attention from its definition.
fn exact(heads: Heads, pairs: RopePairs, layer: KvLayer, sequence: &Sequence) -> Vec<f32> {
    let frequencies = frequencies(heads.dim);
    let rotated = |position: usize, head: usize| -> Vec<f64> {
        let x: Vec<f64> = sequence.qkv[position * heads.width() + head * heads.dim..][..heads.dim]
            .iter()
            .map(|&x| f64::from(x))
            .collect();
        let mut out = x.clone();
        for (i, &frequency) in frequencies.iter().enumerate() {
            let (sin, cos) = (position as f64 * f64::from(frequency)).sin_cos();
            let (a, b) = match pairs {
                RopePairs::Halves => (i, i + heads.dim / 2),
                RopePairs::Adjacent => (2 * i, 2 * i + 1),
            };
            (out[a], out[b]) = (x[a] * cos - x[b] * sin, x[a] * sin + x[b] * cos);
        }
        out
    };
    let mut out = Vec::new();
    for position in 0..sequence.tokens {
        for head in 0..heads.q {
            let kv_head = head / (heads.q / heads.kv);
            let q = rotated(position, head);
            let first = layer.first_seen(position);
            let scores: Vec<f64> = (first..=position)
                .map(|p| {
                    let k = rotated(p, heads.q + kv_head);
                    0.3 * q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>()
                })
                .collect();
            let most = scores.iter().copied().fold(f64::MIN, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for d in 0..heads.dim {
                let at = (heads.q + heads.kv + kv_head) * heads.dim + d;
                let value: f64 = weights
                    .iter()
                    .enumerate()
                    .map(|(p, weight)| weight * f64::from(sequence.qkv[(first + p) * heads.width() + at]))
                    .sum();
                out.push((value / sum) as f32);
            }
        }
    }
    out
}

#[test]
fn attention_agrees_with_its_definition_on_every_instruction_set() {
    let mut random = Random(17);
    for (heads, block_size, pairs, window) in [
        (Heads { q: 9, kv: 3, dim: 64 }, 16, RopePairs::Halves, None),
        (Heads { q: 4, kv: 4, dim: 8 }, 4, RopePairs::Adjacent, None),
        (Heads { q: 8, kv: 1, dim: 80 }, 24, RopePairs::Halves, None),
        (Heads { q: 26, kv: 2, dim: 32 }, 32, RopePairs::Adjacent, None),
        (Heads { q: 9, kv: 3, dim: 64 }, 16, RopePairs::Halves, Some(40)),
        (Heads { q: 4, kv: 4, dim: 8 }, 4, RopePairs::Adjacent, Some(1)),
        (Heads { q: 8, kv: 1, dim: 80 }, 24, RopePairs::Halves, Some(5)),
        (Heads { q: 26, kv: 2, dim: 32 }, 32, RopePairs::Adjacent, Some(130)),
    ] {
        let lengths = [1, 150, 37];
        let (sequences, num_blocks) = sequences(&mut random, heads, block_size, &lengths);
        let expected: Vec<Vec<f32>> =
            sequences.iter().map(|s| exact(heads, pairs, layer(window), s)).collect();
        let step: Vec<_> = lengths.into_iter().enumerate().collect();
        for backend in backends() {
            for (ty, tolerance) in [(KvType::F32, 1e-5), (KvType::F16, 2e-3)] {
                let shape = shape(heads, block_size, num_blocks, ty);
                let place = (pairs, layer(window));
                let got = run(&backend, heads, shape, place, &sequences, std::slice::from_ref(&step));
                for (got, expected) in got.iter().zip(&expected) {
                    assert_close(got, expected, tolerance, &backend.describe());
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn chunks_batches_block_tables_and_threads_do_not_change_a_bit(
        seed in 1u64..,
        lengths in proptest::collection::vec(1usize..300, 1..4),
        threads in 1usize..5,
        block_size in proptest::sample::select(vec![8usize, 16, 32]),
        window in proptest::option::of(1usize..200),
    ) {
        let place = (RopePairs::Halves, layer(window));
        let mut random = Random(seed);
        let heads = Heads { q: 6, kv: 2, dim: 32 };
        let (sequences, num_blocks) = sequences(&mut random, heads, block_size, &lengths);
        let mut left = lengths.clone();
        let mut steps = Vec::new();
        while left.iter().any(|&left| left > 0) {
            let step: Vec<(usize, usize)> = left
                .iter_mut()
                .enumerate()
                .filter(|(_, left)| **left > 0)
                .map(|(index, left)| {
                    let tokens = (1 + random.below(40)).min(*left);
                    *left -= tokens;
                    (index, tokens)
                })
                .collect();
            steps.push(step);
        }
        for isa in Isa::available() {
            for ty in [KvType::F16, KvType::F32] {
                let shape = shape(heads, block_size, num_blocks, ty);
                let backend = CpuBackend::with(isa, threads).unwrap();
                let chunked = run(&backend, heads, shape, place, &sequences, &steps);
                for (index, chunked) in chunked.iter().enumerate() {
                    let mut alone = Sequence { table: (0..num_blocks as u32).collect(), ..sequences[index].clone() };
                    alone.table.truncate(alone.tokens.div_ceil(block_size));
                    let single = CpuBackend::with(isa, 1).unwrap();
                    let whole = [vec![(0, alone.tokens)]];
                    let whole = run(&single, heads, shape, place, &[alone], &whole);
                    prop_assert_eq!(bits(chunked), bits(&whole[0]));
                }
            }
        }
    }
}

#[test]
fn copied_blocks_hold_the_same_keys_and_values_in_every_layer() {
    let backend = CpuBackend::with(Isa::available()[0], 1).unwrap();
    let heads = Heads { q: 2, kv: 1, dim: 16 };
    let mut cache = backend.kv_cache(shape(heads, 16, 3, KvType::F16)).unwrap();
    let mut random = Random(23);
    let prompt = random.floats(16 * heads.width());
    let next = random.floats(heads.width());
    let mut outputs = Vec::new();
    for layer in 0..2 {
        let batch = |positions: std::ops::Range<u32>, table: [u32; 2]| Batch {
            sequences: vec![BatchSequence { tokens: 0..positions.len(), table: 0..2 }],
            positions: positions.collect(),
            block_tables: table.to_vec(),
        };
        let mut qkv = buffer(&backend, 16, &prompt);
        backend.rope_and_store(
            &mut qkv,
            2,
            &frequencies(16),
            RopePairs::Halves,
            &batch(0..16, [0, 1]),
            &mut cache,
            KvLayer::full(layer),
        );
        if layer == 0 {
            continue;
        }
        backend.copy_blocks(&mut cache, &[(0, 2)]);
        for first in [0, 2] {
            for layer in 0..2 {
                let batch = batch(16..17, [first, 1]);
                let mut qkv = buffer(&backend, 1, &next);
                let mut out = backend.alloc(1, 32).unwrap();
                backend.rope_and_store(
                    &mut qkv,
                    2,
                    &frequencies(16),
                    RopePairs::Halves,
                    &batch,
                    &mut cache,
                    KvLayer::full(layer),
                );
                backend.attention_into(&qkv, 2, 0.25, &batch, &cache, KvLayer::full(layer), &mut out);
                outputs.push(bits(out.values()));
            }
        }
    }
    assert!(outputs.iter().all(|out| *out == outputs[0]));
}
