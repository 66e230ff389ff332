//! The exact meaning of every weight type: the reference that kernels are checked against.

use half::{bf16, f16};

use crate::weights::{WeightType, WeightView};

/// All elements of a weight as F32, row-major.
///
/// # Panics
/// When `data` does not have the length that [`WeightView`] promises.
pub fn dequantize(weight: &WeightView<'_>) -> Vec<f32> {
    let num_blocks = weight.rows * weight.columns / weight.ty.block_len();
    assert_eq!(weight.data.len(), num_blocks * weight.ty.block_bytes(), "data of tensor `{}`", weight.name);
    let mut values = Vec::with_capacity(weight.rows * weight.columns);
    let blocks = weight.data.chunks_exact(weight.ty.block_bytes());
    match weight.ty {
        WeightType::F32 => {
            values.extend(blocks.map(|block| f32::from_le_bytes(block.try_into().expect("four bytes"))))
        }
        WeightType::F16 => values.extend(blocks.map(half_at)),
        WeightType::BF16 => {
            values.extend(blocks.map(|block| bf16::from_le_bytes([block[0], block[1]]).to_f32()))
        }
        WeightType::Q8_0 => blocks.for_each(|block| q8_0(block, &mut values)),
        WeightType::Q4_0 => blocks.for_each(|block| q4_0(block, &mut values)),
        WeightType::Q4_1 => blocks.for_each(|block| q4_1(block, &mut values)),
        WeightType::Q6_K => blocks.for_each(|block| q6_k(block, &mut values)),
    }
    values
}

fn half_at(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

fn q8_0(block: &[u8], values: &mut Vec<f32>) {
    let (scale, quants) = block.split_at(2);
    let d = half_at(scale);
    values.extend(quants.iter().map(|&q| d * f32::from(q as i8)));
}

/// The low nibbles are elements 0 to 15, the high nibbles 16 to 31.
fn nibbles(bytes: &[u8]) -> impl Iterator<Item = f32> {
    let low = bytes.iter().map(|byte| f32::from(byte & 15));
    low.chain(bytes.iter().map(|byte| f32::from(byte >> 4)))
}

fn q4_0(block: &[u8], values: &mut Vec<f32>) {
    let d = half_at(block);
    values.extend(nibbles(&block[2..]).map(|q| d * (q - 8.0)));
}

fn q4_1(block: &[u8], values: &mut Vec<f32>) {
    let (d, m) = (half_at(block), half_at(&block[2..]));
    values.extend(nibbles(&block[4..]).map(|q| d * q + m));
}

/// Two halves of 128 elements; a half has 64 bytes of low nibbles, 32 bytes of high bit pairs and 8 scales. Bit pair
/// `p` of a byte belongs to elements `32 p ..`, whose nibbles are low for `p < 2` and alternate between both 32 bytes.
fn q6_k(block: &[u8], values: &mut Vec<f32>) {
    let (low, rest) = block.split_at(128);
    let (high, rest) = rest.split_at(64);
    let (scales, d) = rest.split_at(16);
    let d = half_at(d);
    for half in 0..2 {
        let (low, high, scales) = (&low[64 * half..], &high[32 * half..], &scales[8 * half..]);
        for pair in 0..4 {
            for i in 0..32 {
                let nibble = low[i + 32 * (pair % 2)] >> (4 * (pair / 2)) & 15;
                let quant = nibble | (high[i] >> (2 * pair) & 3) << 4;
                let scale = f32::from(scales[2 * pair + i / 16] as i8);
                values.push(d * scale * (f32::from(quant) - 32.0));
            }
        }
    }
}
