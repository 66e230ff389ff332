//! The block formats as kernels see them: how a panel's block comes into registers, and what one row of activations
//! adds to the 16 (or 8) results that the lanes hold.

use super::matrix::{BLOCK, PANEL, block_layout};
use super::simd::Simd;
use crate::weights::WeightType;

/// One row's share of a block of activations.
#[derive(Clone, Copy)]
pub(super) struct RowBlock {
    /// 32 bytes.
    pub(super) quants: *const i8,
    /// Their scale.
    pub(super) scale: *const f32,
    /// The two words of `activations::Offset`.
    pub(super) sums: [*const i32; 2],
}

/// A block format.
pub(super) trait BlockFormat {
    /// Which.
    const TYPE: WeightType;
    /// Bytes of quants of a panel's block.
    const QUANTS: usize = block_layout(Self::TYPE).0;
    /// Bytes of scales of a panel's block.
    const SCALES: usize = block_layout(Self::TYPE).1;
    /// A block of weights in registers.
    type Block<S: Simd>: Copy;

    /// Loads lanes `lane .. lane + LANES` of a panel's block.
    ///
    /// # Safety
    /// `quants` and `scales` point to a block of this format; `lane + LANES <= 16`.
    unsafe fn load<S: Simd>(s: S, quants: *const u8, scales: *const u8, lane: usize) -> Self::Block<S>;

    /// `sum + block * x`.
    ///
    /// # Safety
    /// `x` points to a block of activations, quantised for this format.
    unsafe fn add_row<S: Simd>(s: S, block: &Self::Block<S>, x: RowBlock, sum: S::F) -> S::F;
}

/// The byte vectors of 32 input features whose nibbles are at `quants`.
#[inline(always)]
unsafe fn load_nibbles<S: Simd>(s: S, quants: *const u8) -> [S::B; 8] {
    // SAFETY: the caller passes four byte vectors.
    let packed: [S::B; 4] = std::array::from_fn(|v| unsafe { s.load_bytes(quants.add(v * 4 * PANEL)) });
    std::array::from_fn(|g| if g < 4 { s.low_nibbles(packed[g]) } else { s.high_nibbles(packed[g - 4]) })
}

/// Four bits, a scale, an offset of 8.
pub(super) struct Q40;

impl BlockFormat for Q40 {
    const TYPE: WeightType = WeightType::Q4_0;
    type Block<S: Simd> = ([S::B; 8], S::F);

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, quants: *const u8, scales: *const u8, lane: usize) -> Self::Block<S> {
        // SAFETY: within the block.
        unsafe { (load_nibbles(s, quants.add(4 * lane)), s.load_f16(scales.cast::<u16>().add(lane))) }
    }

    #[inline(always)]
    unsafe fn add_row<S: Simd>(s: S, (w, d): &Self::Block<S>, x: RowBlock, sum: S::F) -> S::F {
        // SAFETY: the caller's contract.
        let (dot, scale) = unsafe { (s.dot::<4, 8>(w, x.quants, x.sums[0]), x.scale.read()) };
        s.fma(s.to_f32(dot), s.mul(*d, s.splat(scale)), sum)
    }
}

/// Four bits, a scale, a minimum.
pub(super) struct Q41;

/// No offset.
static ZERO: i32 = 0;

impl BlockFormat for Q41 {
    const TYPE: WeightType = WeightType::Q4_1;
    type Block<S: Simd> = ([S::B; 8], S::F, S::F);

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, quants: *const u8, scales: *const u8, lane: usize) -> Self::Block<S> {
        let scales = scales.cast::<u16>();
        // SAFETY: within the block.
        unsafe {
            let (d, m) = (s.load_f16(scales.add(lane)), s.load_f16(scales.add(PANEL + lane)));
            (load_nibbles(s, quants.add(4 * lane)), d, m)
        }
    }

    #[inline(always)]
    unsafe fn add_row<S: Simd>(s: S, (w, d, m): &Self::Block<S>, x: RowBlock, sum: S::F) -> S::F {
        // SAFETY: the caller's contract; the first word holds the bits of a float.
        let (dot, scale, x_sum) = unsafe {
            (s.dot::<4, 8>(w, x.quants, &raw const ZERO), x.scale.read(), x.sums[0].cast::<f32>().read())
        };
        let sum = s.fma(s.to_f32(dot), s.mul(*d, s.splat(scale)), sum);
        s.fma(*m, s.splat(x_sum), sum)
    }
}

/// Eight bits and a scale.
pub(super) struct Q80;

impl BlockFormat for Q80 {
    const TYPE: WeightType = WeightType::Q8_0;
    type Block<S: Simd> = ([S::B; 8], S::F);

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, quants: *const u8, scales: *const u8, lane: usize) -> Self::Block<S> {
        // SAFETY: within the block.
        unsafe {
            let quants = quants.add(4 * lane);
            let w = std::array::from_fn(|g| s.prepare_bytes(s.load_bytes(quants.add(g * 4 * PANEL))));
            (w, s.load_f16(scales.cast::<u16>().add(lane)))
        }
    }

    #[inline(always)]
    unsafe fn add_row<S: Simd>(s: S, (w, d): &Self::Block<S>, x: RowBlock, sum: S::F) -> S::F {
        // SAFETY: the caller's contract.
        let (dot, scale) = unsafe { (s.dot_bytes(w, x.quants, x.sums[0]), x.scale.read()) };
        s.fma(s.to_f32(dot), s.mul(*d, s.splat(scale)), sum)
    }
}

/// Six bits, a scale for each half of the block, an offset of 32.
pub(super) struct Q6K;

impl BlockFormat for Q6K {
    const TYPE: WeightType = WeightType::Q6_K;
    type Block<S: Simd> = ([[S::B; 4]; 2], [S::F; 2]);

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, quants: *const u8, scales: *const u8, lane: usize) -> Self::Block<S> {
        // SAFETY: within the block.
        unsafe {
            let low = load_nibbles(s, quants.add(4 * lane));
            let high = quants.add(PANEL * BLOCK / 2 + 4 * lane);
            let w = [0, 1].map(|half| {
                let high = s.load_bytes(high.add(half * 4 * PANEL));
                let low = &low[4 * half..];
                [
                    s.with_two_bits::<0>(low[0], high),
                    s.with_two_bits::<2>(low[1], high),
                    s.with_two_bits::<4>(low[2], high),
                    s.with_two_bits::<6>(low[3], high),
                ]
            });
            let d = s.load_f16(scales.cast::<u16>().add(lane));
            let sub_scales = scales.add(2 * PANEL + lane).cast::<i8>();
            (w, [s.mul(d, s.load_i8(sub_scales)), s.mul(d, s.load_i8(sub_scales.add(PANEL)))])
        }
    }

    #[inline(always)]
    unsafe fn add_row<S: Simd>(s: S, (w, d): &Self::Block<S>, x: RowBlock, mut sum: S::F) -> S::F {
        // SAFETY: the caller's contract.
        unsafe {
            let scale = s.splat(x.scale.read());
            for half in 0..2 {
                let dot = s.dot::<6, 4>(&w[half], x.quants.add(half * BLOCK / 2), x.sums[half]);
                sum = s.fma(s.to_f32(dot), s.mul(d[half], scale), sum);
            }
        }
        sum
    }
}
