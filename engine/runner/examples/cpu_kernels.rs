//! Speed of the CPU backend's operations, put together as a Llama decoder of SmolLM2-135M's shape with random weights.
//!
//!     cargo run --release -p regatta-runner --example cpu_kernels -- [weight type] [repeats] [threads] [measure]
//!
//! Prints the median tokens a second for a prompt of 512, and for decoding 1 and 16 sequences at a context of 128
//! (measures `prompt`, `decode1`, `decode16`), the latter also at a context of 1000 (`decode1long`, `decode16long`); all
//! if none is named. And where the time went.

use std::time::{Duration, Instant};

use regatta_runner::backend::cpu::{CpuBackend, CpuBuffer, CpuKvCache, CpuMatrix, Isa};
use regatta_runner::backend::{
    Backend, BackendError, Batch, BatchSequence, KvLayer, KvShape, KvType, RopePairs,
};
use regatta_runner::weights::{WeightType, WeightView};

const LAYERS: usize = 30;
const HIDDEN: usize = 576;
const FFN: usize = 1536;
const Q_HEADS: usize = 9;
const KV_HEADS: usize = 3;
const HEAD_DIM: usize = 64;
const VOCAB: usize = 49152;
const BLOCK_SIZE: usize = 16;
const MAX_TOKENS: usize = 512;
const BLOCKS_PER_SEQUENCE: usize = 1024 / BLOCK_SIZE;

struct Layer {
    qkv: CpuMatrix,
    output: CpuMatrix,
    gate_up: CpuMatrix,
    down: CpuMatrix,
}

/// What a part of the step took.
#[derive(Default)]
struct Times {
    linear: Duration,
    attention: Duration,
    rope: Duration,
    rest: Duration,
    logits: Duration,
}

struct Decoder {
    backend: CpuBackend,
    layers: Vec<Layer>,
    table: CpuMatrix,
    norm: CpuBuffer,
    frequencies: Vec<f32>,
    cache: CpuKvCache,
    hidden: CpuBuffer,
    normed: CpuBuffer,
    qkv: CpuBuffer,
    attended: CpuBuffer,
    projected: CpuBuffer,
    gate_up: CpuBuffer,
    gated: CpuBuffer,
    last: CpuBuffer,
    logits: CpuBuffer,
    times: Times,
}

fn random_matrix(
    backend: &CpuBackend,
    ty: WeightType,
    rows: usize,
    columns: usize,
) -> Result<CpuMatrix, BackendError> {
    let mut state = 1u64;
    let bytes = rows * columns / ty.block_len() * ty.block_bytes();
    let mut data: Vec<u8> = (0..bytes)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect();
    // Scales that keep activations finite.
    let scales: &[usize] = match ty {
        WeightType::Q4_1 => &[0, 2],
        WeightType::Q6_K => &[208],
        WeightType::Q8_0 | WeightType::Q4_0 => &[0],
        WeightType::F32 | WeightType::F16 | WeightType::BF16 => &[],
    };
    for block in data.chunks_exact_mut(ty.block_bytes()) {
        scales.iter().for_each(|&at| block[at..at + 2].copy_from_slice(&[0x00, 0x10]));
    }
    backend.pack(&WeightView { name: "random", ty, rows, columns, data: &data })
}

impl Decoder {
    fn new(backend: CpuBackend, ty: WeightType) -> Result<Self, BackendError> {
        let kv = KvShape {
            layers: LAYERS,
            kv_heads: KV_HEADS,
            head_dim: HEAD_DIM,
            num_blocks: 16 * BLOCKS_PER_SEQUENCE,
            block_size: BLOCK_SIZE,
            ty: KvType::F16,
        };
        let qkv_width = (Q_HEADS + 2 * KV_HEADS) * HEAD_DIM;
        let layers = (0..LAYERS)
            .map(|_| {
                Ok(Layer {
                    qkv: random_matrix(&backend, ty, qkv_width, HIDDEN)?,
                    output: random_matrix(&backend, ty, HIDDEN, HIDDEN)?,
                    gate_up: random_matrix(&backend, ty, 2 * FFN, HIDDEN)?,
                    down: random_matrix(&backend, ty, HIDDEN, FFN)?,
                })
            })
            .collect::<Result<_, BackendError>>()?;
        let ones: Vec<u8> = std::iter::repeat_n(1f32.to_le_bytes(), HIDDEN).flatten().collect();
        let ones = WeightView { name: "norm", ty: WeightType::F32, rows: 1, columns: HIDDEN, data: &ones };
        let alloc = |width| backend.alloc(MAX_TOKENS, width);
        Ok(Self {
            layers,
            table: random_matrix(&backend, WeightType::Q8_0, VOCAB, HIDDEN)?,
            norm: backend.vector(&ones)?,
            frequencies: (0..HEAD_DIM / 2).map(|i| 1e5f32.powf(-2.0 * i as f32 / HEAD_DIM as f32)).collect(),
            cache: backend.kv_cache(kv)?,
            hidden: alloc(HIDDEN)?,
            normed: alloc(HIDDEN)?,
            qkv: alloc(qkv_width)?,
            attended: alloc(HIDDEN)?,
            projected: alloc(HIDDEN)?,
            gate_up: alloc(2 * FFN)?,
            gated: alloc(FFN)?,
            last: backend.alloc(16, HIDDEN)?,
            logits: backend.alloc(16, VOCAB)?,
            times: Times::default(),
            backend,
        })
    }

    /// One step: `tokens` tokens from `position` on for each of `sequences`.
    fn step(&mut self, sequences: usize, position: usize, tokens: usize) {
        let b = &self.backend;
        let rows = sequences * tokens;
        let batch = Batch {
            positions: (0..sequences).flat_map(|_| (position..position + tokens).map(|p| p as u32)).collect(),
            sequences: (0..sequences)
                .map(|i| BatchSequence {
                    tokens: i * tokens..(i + 1) * tokens,
                    table: i * BLOCKS_PER_SEQUENCE..(i + 1) * BLOCKS_PER_SEQUENCE,
                })
                .collect(),
            block_tables: (0..(sequences * BLOCKS_PER_SEQUENCE) as u32).collect(),
        };
        for buffer in [
            &mut self.hidden,
            &mut self.normed,
            &mut self.qkv,
            &mut self.attended,
            &mut self.projected,
            &mut self.gate_up,
            &mut self.gated,
        ] {
            b.set_rows(buffer, rows);
        }
        b.set_rows(&mut self.last, sequences);
        b.set_rows(&mut self.logits, sequences);
        let mut since = Instant::now();
        let mut lap = |total: &mut Duration| {
            let now = Instant::now();
            *total += now - since;
            since = now;
        };
        let ids: Vec<u32> = (0..rows as u32).collect();
        let times = &mut self.times;
        b.embed_into(&self.table, &ids, &mut self.hidden);
        for (index, layer) in self.layers.iter().enumerate() {
            b.rms_norm_into(&self.hidden, &self.norm, 1e-5, &mut self.normed);
            lap(&mut times.rest);
            b.linear_into(&self.normed, &layer.qkv, &mut self.qkv);
            lap(&mut times.linear);
            let (frequencies, cache, kv) = (&self.frequencies, &mut self.cache, KvLayer::full(index));
            b.rope_and_store(&mut self.qkv, Q_HEADS, frequencies, RopePairs::Adjacent, &batch, cache, kv);
            lap(&mut times.rope);
            b.attention_into(&self.qkv, Q_HEADS, 0.125, &batch, &self.cache, kv, &mut self.attended);
            lap(&mut times.attention);
            b.linear_into(&self.attended, &layer.output, &mut self.projected);
            lap(&mut times.linear);
            b.add_assign(&mut self.hidden, &self.projected);
            b.rms_norm_into(&self.hidden, &self.norm, 1e-5, &mut self.normed);
            lap(&mut times.rest);
            b.linear_into(&self.normed, &layer.gate_up, &mut self.gate_up);
            lap(&mut times.linear);
            b.silu_mul_into(&self.gate_up, &mut self.gated);
            lap(&mut times.rest);
            b.linear_into(&self.gated, &layer.down, &mut self.projected);
            lap(&mut times.linear);
            b.add_assign(&mut self.hidden, &self.projected);
        }
        b.rms_norm_into(&self.hidden, &self.norm, 1e-5, &mut self.normed);
        let rows: Vec<usize> = (0..sequences).map(|i| (i + 1) * tokens - 1).collect();
        b.gather_rows_into(&self.normed, &rows, &mut self.last);
        lap(&mut times.rest);
        b.linear_into(&self.last, &self.table, &mut self.logits);
        lap(&mut times.logits);
    }

    /// Median tokens a second of `steps` steps, and what the parts took.
    fn measure(&mut self, what: &str, sequences: usize, position: usize, tokens: usize, steps: usize) {
        self.step(sequences, position, tokens);
        self.times = Times::default();
        let mut seconds: Vec<f64> = (0..steps)
            .map(|_| {
                let start = Instant::now();
                self.step(sequences, position, tokens);
                start.elapsed().as_secs_f64()
            })
            .collect();
        seconds.sort_by(f64::total_cmp);
        let rate = |s: f64| (sequences * tokens) as f64 / s;
        let part = |d: Duration| d.as_secs_f64() * 1e3 / steps as f64;
        let t = &self.times;
        println!(
            "{what:14} {:9.1} tok/s (best {:9.1})   ms a step: linear {:.2} attention {:.2} rope {:.2} rest {:.2} logits {:.2}",
            rate(seconds[steps / 2]),
            rate(seconds[0]),
            part(t.linear),
            part(t.attention),
            part(t.rope),
            part(t.rest),
            part(t.logits),
        );
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let ty = match args.next().as_deref() {
        None | Some("q4_1") => WeightType::Q4_1,
        Some("q4_0") => WeightType::Q4_0,
        Some("q8_0") => WeightType::Q8_0,
        Some("f16") => WeightType::F16,
        Some("f32") => WeightType::F32,
        Some("bf16") => WeightType::BF16,
        Some(other) => return Err(format!("unknown weight type `{other}`").into()),
    };
    let repeats: usize = args.next().map_or(Ok(20), |n| n.parse())?;
    let backend = match args.next() {
        Some(threads) => CpuBackend::with(Isa::from_env()?, threads.parse()?)?,
        None => CpuBackend::new()?,
    };
    println!("{} {ty:?}", backend.describe());
    let mut decoder = Decoder::new(backend, ty)?;
    let only = args.next();
    let asked = |what: &str| only.as_deref().is_none_or(|only| only == what);
    if asked("prompt") {
        decoder.measure("prompt 512", 1, 0, 512, repeats.div_ceil(4));
    }
    if asked("decode1") {
        decoder.measure("decode 1", 1, 128, 1, 4 * repeats);
    }
    if asked("decode16") {
        decoder.measure("decode 16", 16, 128, 1, repeats);
    }
    if asked("decode1long") {
        decoder.measure("decode 1 long", 1, 1000, 1, 4 * repeats);
    }
    if asked("decode16long") {
        decoder.measure("decode 16 long", 16, 1000, 1, repeats);
    }
    Ok(())
}
