//! Packed weights: panels of 16 output features, so that a vector lane is an output feature.
//!
//! Every instruction set reads the same layout. In the block formats a panel is cut along the input features into
//! blocks of 32, and a block into groups of four, the products that one 32-bit lane sums at once:
//!
//! ```text
//!             one byte vector = group of 4 input features (64 bytes)
//!  feature     0             1                     15
//!            +-------------+-------------+ ... +-------------+
//!   bytes    | k k+1 k+2 +3| k k+1 k+2 +3|     | k k+1 k+2 +3|
//!            +-------------+-------------+ ... +-------------+
//!
//!  block of 32 input features:
//!   Q8_0         8 byte vectors, groups 0..8, each byte q + 128
//!   Q4_0, Q4_1   4 byte vectors: low nibbles are group v, high nibbles group v + 4
//!   Q6_K         as Q4 for the low four bits, then 2 byte vectors with the high two bits: bits 2 j.. of
//!                vector u belong to group 4 u + j
//!
//!  panel:  | blocks' quants ... | blocks' scales ... |      all panels one after the other
//!   scales of a block, 16 features each:  Q8_0, Q4_0: d (F16);  Q4_1: d, m (F16);
//!                                         Q6_K: d (F16), then the two sub-blocks' scales (signed bytes)
//! ```
//!
//! F32, F16 and BF16 panels are simply `[columns, 16]`.

use super::memory::{Memory, Shared};
use super::threads::Pool;
use crate::backend::BackendError;
use crate::weights::{WeightType, WeightView};

/// Output features of a panel.
pub(super) const PANEL: usize = 16;
/// Input features of a block.
pub(super) const BLOCK: usize = 32;

/// A weight matrix: one part for each run of equal element types among the stacked weights.
pub struct CpuMatrix {
    pub(super) parts: Vec<Part>,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

/// Panels of one element type.
pub(super) struct Part {
    pub(super) ty: WeightType,
    /// The first output feature within the matrix.
    pub(super) first_row: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) panels: Memory,
}

/// Bytes of quants and of scales in a panel's block, for the block formats.
pub(super) const fn block_layout(ty: WeightType) -> (usize, usize) {
    match ty {
        WeightType::Q8_0 => (PANEL * BLOCK, 2 * PANEL),
        WeightType::Q4_0 => (PANEL * BLOCK / 2, 2 * PANEL),
        WeightType::Q4_1 => (PANEL * BLOCK / 2, 4 * PANEL),
        WeightType::Q6_K => (PANEL * BLOCK * 3 / 4, 4 * PANEL),
        WeightType::F32 | WeightType::F16 | WeightType::BF16 => (0, 0),
    }
}

impl Part {
    /// Bytes of a panel.
    pub(super) fn panel_bytes(&self) -> usize {
        panel_bytes(self.ty, self.columns)
    }

    /// Number of panels; the last may be filled up with zeros.
    pub(super) fn num_panels(&self) -> usize {
        self.rows.div_ceil(PANEL)
    }
}

fn panel_bytes(ty: WeightType, columns: usize) -> usize {
    match ty {
        WeightType::F32 | WeightType::F16 | WeightType::BF16 => columns * PANEL * ty.block_bytes(),
        _ => {
            let (quants, scales) = block_layout(ty);
            (columns / BLOCK * (quants + scales)).next_multiple_of(64)
        }
    }
}

/// Packs weights of equal `columns`, rows stacked in order.
pub(super) fn pack(pool: &Pool, weights: &[WeightView<'_>]) -> Result<CpuMatrix, BackendError> {
    let Some(first) = weights.first() else {
        return Ok(CpuMatrix { parts: Vec::new(), rows: 0, columns: 0 });
    };
    let columns = first.columns;
    for weight in weights {
        let refuse = |reason: String| BackendError::Unsupported { name: weight.name.to_owned(), reason };
        if weight.columns != columns {
            let (a, b) = (weight.columns, first.name);
            return Err(refuse(format!("it has {a} columns and is stacked with `{b}`, which has {columns}")));
        }
        let (len, bytes) = (weight.ty.block_len(), weight.ty.block_bytes());
        if columns % len != 0 {
            return Err(refuse(format!("{columns} columns are not whole {:?} blocks of {len}", weight.ty)));
        }
        if weight.rows.checked_mul(columns / len * bytes) != Some(weight.data.len()) {
            return Err(refuse(format!("{} bytes are not {} x {columns}", weight.data.len(), weight.rows)));
        }
    }
    let mut parts = Vec::new();
    let mut first_row = 0;
    for run in weights.chunk_by(|a, b| a.ty == b.ty) {
        let rows = run.iter().map(|weight| weight.rows).sum();
        parts.push(pack_part(pool, run, first_row, rows)?);
        first_row += rows;
    }
    Ok(CpuMatrix { parts, rows: first_row, columns })
}

fn pack_part(
    pool: &Pool,
    run: &[WeightView<'_>],
    first_row: usize,
    rows: usize,
) -> Result<Part, BackendError> {
    let (ty, columns) = (run[0].ty, run[0].columns);
    let bytes = panel_bytes(ty, columns);
    let too_large =
        BackendError::OutOfMemory { what: format!("weight `{}`", run[0].name), bytes: usize::MAX };
    let total = rows.div_ceil(PANEL).checked_mul(bytes).ok_or(too_large)?;
    let mut panels = Memory::zeroed(&format!("weight `{}`", run[0].name), total)?;
    let row_bytes = columns / ty.block_len() * ty.block_bytes();
    let sources: Vec<&[u8]> = run.iter().flat_map(|w| w.data.chunks_exact(row_bytes.max(1))).collect();
    let shared = Shared::new(&mut panels);
    pool.run(rows.div_ceil(PANEL), &|panel| {
        // SAFETY: one panel, and each panel is one item.
        let target = unsafe { shared.part(panel * bytes..(panel + 1) * bytes) };
        let sources = &sources[panel * PANEL..rows.min((panel + 1) * PANEL)];
        for (feature, source) in sources.iter().enumerate() {
            pack_row(ty, columns, feature, source, target);
        }
    });
    Ok(Part { ty, first_row, rows, columns, panels })
}

/// Writes one row of a weight into its place in a zeroed panel.
fn pack_row(ty: WeightType, columns: usize, feature: usize, source: &[u8], panel: &mut [u8]) {
    let (quants_len, scales_len) = block_layout(ty);
    if quants_len == 0 {
        let size = ty.block_bytes();
        for (k, value) in source.chunks_exact(size).enumerate() {
            let at = (k * PANEL + feature) * size;
            panel[at..at + size].copy_from_slice(value);
        }
        return;
    }
    let blocks = columns / BLOCK;
    let (quants, scales) = panel.split_at_mut(blocks * quants_len);
    let mut values = [0u8; BLOCK];
    for block in 0..blocks {
        let quants = &mut quants[block * quants_len..][..quants_len];
        let scales = &mut scales[block * scales_len..][..scales_len];
        match ty {
            WeightType::Q8_0 => {
                let source = &source[block * 34..][..34];
                put_half(scales, feature, &source[..2]);
                values.iter_mut().zip(&source[2..]).for_each(|(value, &q)| *value = q ^ 0x80);
                put_bytes(quants, feature, &values);
            }
            WeightType::Q4_0 | WeightType::Q4_1 => {
                let size = ty.block_bytes();
                let (head, packed) = source[block * size..][..size].split_at(size - BLOCK / 2);
                put_half(scales, feature, &head[..2]);
                if ty == WeightType::Q4_1 {
                    put_half(&mut scales[2 * PANEL..], feature, &head[2..]);
                }
                for (i, &byte) in packed.iter().enumerate() {
                    values[i] = byte & 15;
                    values[i + 16] = byte >> 4;
                }
                put_nibbles(quants, feature, &values);
            }
            _ => {
                let source = &source[block / 8 * 210..][..210];
                let sub_blocks = &source[192 + block % 8 * 2..][..2];
                put_half(scales, feature, &source[208..]);
                scales[2 * PANEL + feature] = sub_blocks[0];
                scales[3 * PANEL + feature] = sub_blocks[1];
                q6_k_values(source, block % 8, &mut values);
                put_nibbles(quants, feature, &values);
                put_two_bits(&mut quants[PANEL * BLOCK / 2..], feature, &values);
            }
        }
    }
}

/// Six-bit values (with their offset of 32) of elements `32 part .. 32 (part + 1)` of a Q6_K block. In each half of
/// the block 64 bytes hold the low four bits of elements `l` and `l + 64`, and 32 bytes hold the high two bits of
/// elements `l`, `l + 32`, `l + 64` and `l + 96`, from the low bits up.
fn q6_k_values(source: &[u8], part: usize, values: &mut [u8; BLOCK]) {
    let (half, quarter) = (part / 4, part % 4);
    let low = &source[half * 64 + quarter % 2 * 32..][..BLOCK];
    let high = &source[128 + half * 32..][..BLOCK];
    for ((value, &low), &high) in values.iter_mut().zip(low).zip(high) {
        *value = (low >> (quarter / 2 * 4) & 15) | (high >> (2 * quarter) & 3) << 4;
    }
}

fn put_half(scales: &mut [u8], feature: usize, half: &[u8]) {
    scales[2 * feature..2 * feature + 2].copy_from_slice(half);
}

/// Place of input feature `k` of a block in byte vectors.
const fn place(feature: usize, k: usize) -> usize {
    k / 4 * 4 * PANEL + feature * 4 + k % 4
}

fn put_bytes(quants: &mut [u8], feature: usize, values: &[u8; BLOCK]) {
    for (k, &value) in values.iter().enumerate() {
        quants[place(feature, k)] = value;
    }
}

fn put_nibbles(quants: &mut [u8], feature: usize, values: &[u8; BLOCK]) {
    for k in 0..BLOCK / 2 {
        quants[place(feature, k)] = values[k] & 15 | (values[k + BLOCK / 2] & 15) << 4;
    }
}

fn put_two_bits(quants: &mut [u8], feature: usize, values: &[u8; BLOCK]) {
    for (k, &value) in values.iter().enumerate() {
        quants[k / 16 * 4 * PANEL + feature * 4 + k % 4] |= (value >> 4) << (k / 4 % 4 * 2);
    }
}

impl CpuMatrix {
    /// Writes row `row` as F32, exactly what the stored format says.
    pub(super) fn read_row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.rows, "row {row} of a matrix with {} rows", self.rows);
        let part =
            self.parts.iter().find(|part| row < part.first_row + part.rows).expect("parts cover all rows");
        let (panel, feature) = ((row - part.first_row) / PANEL, (row - part.first_row) % PANEL);
        let bytes = part.panel_bytes();
        read_row(part.ty, feature, &part.panels[panel * bytes..][..bytes], out);
    }
}

fn half_at(bytes: &[u8], index: usize) -> f32 {
    half::f16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]).to_f32()
}

fn read_row(ty: WeightType, feature: usize, panel: &[u8], out: &mut [f32]) {
    let (quants_len, scales_len) = block_layout(ty);
    if quants_len == 0 {
        let size = ty.block_bytes();
        for (k, value) in out.iter_mut().enumerate() {
            let bytes = &panel[(k * PANEL + feature) * size..][..size];
            *value = match ty {
                WeightType::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
                WeightType::F16 => half_at(bytes, 0),
                _ => half::bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
            };
        }
        return;
    }
    let (quants, scales) = panel.split_at(out.len() / BLOCK * quants_len);
    let nibble = |quants: &[u8], k: usize| f32::from(quants[place(feature, k % 16)] >> (k / 16 * 4) & 15);
    for (block, out) in out.chunks_exact_mut(BLOCK).enumerate() {
        let quants = &quants[block * quants_len..][..quants_len];
        let scales = &scales[block * scales_len..][..scales_len];
        let d = half_at(scales, feature);
        for (k, value) in out.iter_mut().enumerate() {
            *value = match ty {
                WeightType::Q8_0 => d * (f32::from(quants[place(feature, k)]) - 128.0),
                WeightType::Q4_0 => d * (nibble(quants, k) - 8.0),
                WeightType::Q4_1 => d * nibble(quants, k) + half_at(&scales[2 * PANEL..], feature),
                _ => {
                    let scale = f32::from(scales[(2 + k / 16) * PANEL + feature] as i8);
                    let high = quants[PANEL * BLOCK / 2 + k / 16 * 4 * PANEL + feature * 4 + k % 4];
                    let high = f32::from(high >> (k / 4 % 4 * 2) & 3);
                    d * scale * (nibble(quants, k) + 16.0 * high - 32.0)
                }
            };
        }
    }
}
