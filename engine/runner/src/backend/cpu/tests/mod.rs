//! The kernels against plain arithmetic, on every instruction set that this machine has.

mod attention;
mod elementwise;
mod linear;

use super::{CpuBackend, CpuBuffer, Isa};
use crate::backend::Backend;
use crate::weights::{WeightType, WeightView};

/// A small generator of test data (Marsaglia, Xorshift RNGs, 2003).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// In -1..1.
    fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    }

    fn floats(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.float()).collect()
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn half(&mut self, magnitude: f32) -> [u8; 2] {
        half::f16::from_f32(self.float() * magnitude).to_le_bytes()
    }

    /// Stored elements of a weight: any bytes for the quants, small numbers for the scales.
    fn weight(&mut self, ty: WeightType, rows: usize, columns: usize) -> Vec<u8> {
        let mut data = Vec::new();
        for _ in 0..rows * columns / ty.block_len() {
            match ty {
                WeightType::F32 => data.extend(self.float().to_le_bytes()),
                WeightType::F16 => data.extend(self.half(1.0)),
                WeightType::BF16 => data.extend(half::bf16::from_f32(self.float()).to_le_bytes()),
                _ => {
                    let start = data.len();
                    data.extend((0..ty.block_bytes()).map(|_| self.next() as u8));
                    let scales: &[usize] = match ty {
                        WeightType::Q4_1 => &[0, 2],
                        WeightType::Q6_K => &[208],
                        _ => &[0],
                    };
                    for at in scales {
                        data[start + at..start + at + 2].copy_from_slice(&self.half(0.05));
                    }
                }
            }
        }
        data
    }
}

const ALL_TYPES: [WeightType; 7] = [
    WeightType::F32,
    WeightType::F16,
    WeightType::BF16,
    WeightType::Q8_0,
    WeightType::Q4_0,
    WeightType::Q4_1,
    WeightType::Q6_K,
];

fn view<'a>(ty: WeightType, rows: usize, columns: usize, data: &'a [u8]) -> WeightView<'a> {
    WeightView { name: "test", ty, rows, columns, data }
}

/// What the formats' definitions say, element by element.
fn dequantize(ty: WeightType, data: &[u8]) -> Vec<f32> {
    let half = |b: &[u8]| half::f16::from_le_bytes([b[0], b[1]]).to_f32();
    let mut out = Vec::new();
    for block in data.chunks_exact(ty.block_bytes()) {
        match ty {
            WeightType::F32 => out.push(f32::from_le_bytes(block.try_into().unwrap())),
            WeightType::F16 => out.push(half(block)),
            WeightType::BF16 => out.push(half::bf16::from_le_bytes([block[0], block[1]]).to_f32()),
            WeightType::Q8_0 => out.extend(block[2..].iter().map(|&q| half(block) * f32::from(q as i8))),
            WeightType::Q4_0 => out.extend((0..32).map(|i| {
                let q = block[2 + i % 16] >> (i / 16 * 4) & 15;
                half(block) * (f32::from(q) - 8.0)
            })),
            WeightType::Q4_1 => out.extend((0..32).map(|i| {
                let q = block[4 + i % 16] >> (i / 16 * 4) & 15;
                half(block) * f32::from(q) + half(&block[2..])
            })),
            WeightType::Q6_K => out.extend((0..256).map(|i| {
                let (h, l) = (i / 128, i % 128);
                let low = block[64 * h + l % 64] >> (l / 64 * 4) & 15;
                let high = block[128 + 32 * h + l % 32] >> (l / 32 * 2) & 3;
                let scale = f32::from(block[192 + i / 16] as i8);
                half(&block[208..]) * scale * f32::from((low | high << 4) as i8 - 32)
            })),
        }
    }
    out
}

/// A backend for each instruction set of this machine and several numbers of threads.
fn backends() -> Vec<CpuBackend> {
    let sets = Isa::available();
    sets.into_iter().flat_map(|isa| [1, 3].map(|threads| CpuBackend::with(isa, threads).unwrap())).collect()
}

fn buffer(backend: &CpuBackend, rows: usize, values: &[f32]) -> CpuBuffer {
    let mut buffer = backend.alloc(rows, values.len() / rows).unwrap();
    buffer.values_mut().copy_from_slice(values);
    buffer
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[track_caller]
fn assert_close(got: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert_eq!(got.len(), expected.len());
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert!((got - expected).abs() <= tolerance, "{what}: element {i} is {got}, not {expected}");
    }
}
