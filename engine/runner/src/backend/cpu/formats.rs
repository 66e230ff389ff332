//! The block formats as kernels see them: how a panel's block comes into registers, and what rows of activations
//! add to the 16 (or 8) results that the lanes hold.

use super::matrix::{BLOCK, PANEL, block_layout};
use super::simd::Simd;
use crate::weights::WeightType;

/// A block of activations of some consecutive rows of a tile.
#[derive(Clone, Copy)]
pub(super) struct RowBlocks {
    /// 32 bytes a row.
    pub(super) quants: *const i8,
    /// Their scales.
    pub(super) scales: *const f32,
    /// The two words of `activations::Offset`, each for all rows.
    pub(super) sums: [*const i32; 2],
}

impl RowBlocks {
    /// The same from row `n` on.
    ///
    /// # Safety
    /// There are that many rows.
    #[inline(always)]
    pub(super) unsafe fn skip(self, n: usize) -> Self {
        // SAFETY: the caller's contract.
        unsafe {
            Self {
                quants: self.quants.add(n * BLOCK),
                scales: self.scales.add(n),
                sums: self.sums.map(|sums| sums.add(n)),
            }
        }
    }

    /// The quants of each row, from byte `at` of the block on.
    #[inline(always)]
    unsafe fn quants<const N: usize>(self, at: usize) -> [*const i8; N] {
        // SAFETY: the caller passes as many rows.
        std::array::from_fn(|n| unsafe { self.quants.add(n * BLOCK + at) })
    }

    /// Word `word` of each row.
    #[inline(always)]
    unsafe fn words<const N: usize>(self, word: usize) -> [*const i32; N] {
        // SAFETY: the caller passes as many rows.
        std::array::from_fn(|n| unsafe { self.sums[word].add(n) })
    }
}

/// `sums + dots * d * scales`, by row.
#[inline(always)]
unsafe fn add_scaled<S: Simd, const N: usize>(
    s: S,
    dots: [S::I; N],
    d: S::F,
    scales: *const f32,
    sums: [S::F; N],
) -> [S::F; N] {
    std::array::from_fn(|n| {
        // SAFETY: the caller passes a scale for each row.
        let scale = s.splat(unsafe { scales.add(n).read() });
        s.fma(s.to_f32(dots[n]), s.mul(d, scale), sums[n])
    })
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

    /// `sums + block * x` for `N` rows, each with the same operations whatever `N`.
    ///
    /// # Safety
    /// `x` points to blocks of `N` rows, quantised for this format.
    unsafe fn add_rows<S: Simd, const N: usize>(
        s: S,
        block: &Self::Block<S>,
        x: RowBlocks,
        sums: [S::F; N],
    ) -> [S::F; N];
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
    unsafe fn add_rows<S: Simd, const N: usize>(
        s: S,
        (w, d): &Self::Block<S>,
        x: RowBlocks,
        sums: [S::F; N],
    ) -> [S::F; N] {
        // SAFETY: the caller's contract.
        unsafe {
            let dots = s.dot::<4, 8, N>(w, x.quants(0), x.words(0));
            add_scaled(s, dots, *d, x.scales, sums)
        }
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
    unsafe fn add_rows<S: Simd, const N: usize>(
        s: S,
        (w, d, m): &Self::Block<S>,
        x: RowBlocks,
        sums: [S::F; N],
    ) -> [S::F; N] {
        // SAFETY: the caller's contract; the first word holds the bits of a float.
        unsafe {
            let dots = s.dot::<4, 8, N>(w, x.quants(0), [&raw const ZERO; N]);
            let sums = add_scaled(s, dots, *d, x.scales, sums);
            std::array::from_fn(|n| s.fma(*m, s.splat(x.sums[0].cast::<f32>().add(n).read()), sums[n]))
        }
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
    unsafe fn add_rows<S: Simd, const N: usize>(
        s: S,
        (w, d): &Self::Block<S>,
        x: RowBlocks,
        sums: [S::F; N],
    ) -> [S::F; N] {
        // SAFETY: the caller's contract.
        unsafe {
            let dots = s.dot_bytes(w, x.quants(0), x.words(0));
            add_scaled(s, dots, *d, x.scales, sums)
        }
    }
}

/// Four byte vectors with the two high bits of each, which lie in one. (No closure: it would not be inlined, and then
/// no vector operation in it.)
#[inline(always)]
fn six_bits<S: Simd>(s: S, low: [S::B; 4], high: S::B) -> [S::B; 4] {
    [
        s.with_two_bits::<0>(low[0], high),
        s.with_two_bits::<2>(low[1], high),
        s.with_two_bits::<4>(low[2], high),
        s.with_two_bits::<6>(low[3], high),
    ]
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
            let w = [
                six_bits(s, [low[0], low[1], low[2], low[3]], s.load_bytes(high)),
                six_bits(s, [low[4], low[5], low[6], low[7]], s.load_bytes(high.add(4 * PANEL))),
            ];
            let d = s.load_f16(scales.cast::<u16>().add(lane));
            let sub_scales = scales.add(2 * PANEL + lane).cast::<i8>();
            (w, [s.mul(d, s.load_i8(sub_scales)), s.mul(d, s.load_i8(sub_scales.add(PANEL)))])
        }
    }

    #[inline(always)]
    unsafe fn add_rows<S: Simd, const N: usize>(
        s: S,
        (w, d): &Self::Block<S>,
        x: RowBlocks,
        sums: [S::F; N],
    ) -> [S::F; N] {
        // SAFETY: the caller's contract.
        unsafe {
            let dots = s.dot::<6, 4, N>(&w[0], x.quants(0), x.words(0));
            let sums = add_scaled(s, dots, d[0], x.scales, sums);
            let dots = s.dot::<6, 4, N>(&w[1], x.quants(BLOCK / 2), x.words(1));
            add_scaled(s, dots, d[1], x.scales, sums)
        }
    }
}
