//! Matrix products: `out = x * w^T` over panels of 16 output features and tiles of up to 16 rows.
//!
//! A result is always the same chain of operations over the blocks of input features, in order, whatever tile it is
//! computed in: a row gives the same bits alone and in any batch, on any number of threads.

use std::marker::PhantomData;
use std::ops::Range;

use super::activations::{Dense, Quantized, TileShape};
use super::formats::{BlockFormat, Q6K, Q40, Q41, Q80, RowBlocks};
use super::isa::Isa;
use super::matrix::{BLOCK, CpuMatrix, PANEL, Part};
use super::memory::Shared;
use super::simd::{Kernel, Simd};
use super::threads::Pool;
use crate::weights::WeightType;

/// Activations as the kernels want them; kept for its memory.
#[derive(Default)]
pub(super) struct Scratch {
    quantized: Quantized,
    dense: Dense,
}

/// Bytes of weights that one item reads, about: small enough to share out evenly, large enough to be worth a claim.
const ITEM_BYTES: usize = 16 << 10;
/// Tiles of rows that one item takes through its panels: their activations stay in the second-level cache.
const ITEM_TILES: usize = 16;

/// `out[rows, w.rows] = x[rows, w.columns] * w^T`.
pub(super) fn matmul(
    isa: Isa,
    pool: &Pool,
    scratch: &mut Scratch,
    x: &[f32],
    rows: usize,
    w: &CpuMatrix,
    out: &mut [f32],
) {
    assert_eq!(x.len(), rows * w.columns);
    assert_eq!(out.len(), rows * w.rows);
    if rows == 0 {
        return;
    }
    let mut quantized_for = None;
    let out = Output { values: Shared::new(out), width: w.rows };
    for part in &w.parts {
        let dense = matches!(part.ty, WeightType::F32 | WeightType::F16 | WeightType::BF16);
        if dense {
            scratch.dense.fill(pool, x, rows);
        } else if quantized_for != Some(part.ty) {
            scratch.quantized.fill(isa, pool, x, rows, part.ty);
            quantized_for = Some(part.ty);
        }
        let shape = if dense { scratch.dense.shape() } else { scratch.quantized.shape() };
        for_each_item(pool, part, shape, |panels, tiles| match part.ty {
            WeightType::Q4_0 => isa.run(Blocks::<Q40>::new(&scratch.quantized, part, out, panels, tiles)),
            WeightType::Q4_1 => isa.run(Blocks::<Q41>::new(&scratch.quantized, part, out, panels, tiles)),
            WeightType::Q8_0 => isa.run(Blocks::<Q80>::new(&scratch.quantized, part, out, panels, tiles)),
            WeightType::Q6_K => isa.run(Blocks::<Q6K>::new(&scratch.quantized, part, out, panels, tiles)),
            WeightType::F32 | WeightType::F16 | WeightType::BF16 => {
                isa.run(Floats { x: &scratch.dense, w: part, out, panels, tiles });
            }
        });
    }
}

/// Cuts a product into items: ranges of panels times ranges of tiles.
fn for_each_item(
    pool: &Pool,
    part: &Part,
    shape: TileShape,
    run: impl Fn(Range<usize>, Range<usize>) + Sync,
) {
    let panels_per_item = (ITEM_BYTES / part.panel_bytes().max(1)).max(1);
    let (panels, tiles) = (part.num_panels(), shape.num_tiles());
    let columns = panels.div_ceil(panels_per_item);
    pool.run(columns * tiles.div_ceil(ITEM_TILES), &|item| {
        let (column, row) = (item % columns, item / columns);
        run(
            column * panels_per_item..panels.min((column + 1) * panels_per_item),
            row * ITEM_TILES..tiles.min((row + 1) * ITEM_TILES),
        );
    });
}

/// The results, `width` to a row.
#[derive(Clone, Copy)]
struct Output<'a> {
    values: Shared<'a, f32>,
    width: usize,
}

/// Evaluates `$body` for each `$h < $H` with a constant `$h`: as a loop, the sums would live in memory.
macro_rules! for_each_group {
    ($H:ident, |$h:ident| $body:expr) => {
        for_each_group!(@ $H, $h, $body, 0 1 2 3)
    };
    (@ $H:ident, $h:ident, $body:expr, $($n:literal)*) => {
        $(if $n < $H {
            let $h = $n;
            $body;
        })*
    };
}

impl Output<'_> {
    /// Stores the lanes that are real features of `part`, for rows from `row` on: `feature` is the first, within the
    /// part.
    ///
    /// # Safety
    /// No other thread touches these results.
    #[inline(always)]
    unsafe fn store<S: Simd, const N: usize, const H: usize>(
        self,
        s: S,
        row: usize,
        part: &Part,
        feature: usize,
        sums: &[[S::F; N]; H],
    ) {
        let lanes = part.rows.saturating_sub(feature).min(S::LANES);
        if lanes == 0 {
            return;
        }
        let first = row * self.width + part.first_row + feature;
        let end = first + (N * H - 1) * self.width + lanes;
        // SAFETY: the range is checked; of it only this tile's results are touched, which are exclusive by the caller's
        // contract. A vector has at most 16 lanes.
        unsafe {
            let target = self.values.pointer(first..end);
            for_each_group!(H, |h| for (n, &sum) in sums[h].iter().enumerate() {
                let target = target.add((h * N + n) * self.width);
                if lanes == S::LANES {
                    s.store(target, sum);
                } else {
                    let mut all = [0.0; PANEL];
                    s.store(all.as_mut_ptr(), sum);
                    target.copy_from_nonoverlapping(all.as_ptr(), lanes);
                }
            });
        }
    }
}

/// Evaluates `$body` over `$rows` rows with `$r` the first of `$N * $H` of them, as many as fit each time: `$H` groups of
/// `$N` rows, whose results fill the registers.
macro_rules! for_row_groups {
    ($S:ident, $rows:expr, |$r:ident, $N:ident, $H:ident| $body:expr) => {{
        let rows = $rows;
        let mut $r = 0;
        while $r < rows {
            match rows - $r {
                16.. if $S::TILE >= 16 => for_row_groups!(@one 4, 4, $r, $N, $H, $body),
                12.. if $S::TILE >= 16 => for_row_groups!(@one 4, 3, $r, $N, $H, $body),
                8.. if $S::TILE >= 8 => for_row_groups!(@one 4, 2, $r, $N, $H, $body),
                4.. if $S::TILE >= 8 => for_row_groups!(@one 4, 1, $r, $N, $H, $body),
                4.. => for_row_groups!(@one 2, 2, $r, $N, $H, $body),
                2.. => for_row_groups!(@one 2, 1, $r, $N, $H, $body),
                _ => for_row_groups!(@one 1, 1, $r, $N, $H, $body),
            }
        }
    }};
    (@one $n:literal, $h:literal, $r:ident, $N:ident, $H:ident, $body:expr) => {{
        const $N: usize = $n;
        const $H: usize = $h;
        $body;
        $r += $N * $H;
    }};
}

/// A product with block-quantised weights.
struct Blocks<'a, Q> {
    x: &'a Quantized,
    w: &'a Part,
    out: Output<'a>,
    panels: Range<usize>,
    tiles: Range<usize>,
    _format: PhantomData<Q>,
}

impl<'a, Q: BlockFormat> Blocks<'a, Q> {
    fn new(
        x: &'a Quantized,
        w: &'a Part,
        out: Output<'a>,
        panels: Range<usize>,
        tiles: Range<usize>,
    ) -> Self {
        assert!(w.ty == Q::TYPE && x.shape().columns == w.columns);
        assert!(panels.end <= w.num_panels() && tiles.end <= x.shape().num_tiles());
        Self { x, w, out, panels, tiles, _format: PhantomData }
    }
}

impl<Q: BlockFormat> Kernel for Blocks<'_, Q> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let shape = self.x.shape();
        let blocks = shape.blocks();
        // Tiles outside: a tile's activations stay in the first-level cache, the item's weights in the second, and
        // results are written line after line.
        for tile in self.tiles.clone() {
            let rows = shape.tile_rows(tile);
            let slot = tile * blocks * shape.tile;
            for panel in self.panels.clone() {
                let quants = self.w.panels[panel * self.w.panel_bytes()..][..self.w.panel_bytes()].as_ptr();
                for lane in (0..PANEL).step_by(S::LANES) {
                    for_row_groups!(S, rows.len(), |r, N, H| {
                        let x = TileRows {
                            quants: self.x.quants[(slot + r) * BLOCK..].as_ptr(),
                            scales: self.x.scales[slot + r..].as_ptr(),
                            sums: self.x.sums[2 * slot + r..].as_ptr(),
                            height: shape.tile,
                        };
                        // SAFETY: panel and tile are within bounds, checked in `new` and by the slicing above; the
                        // results of an item are its own.
                        unsafe {
                            let sums: [[S::F; N]; H] = block_tile::<S, Q, N, H>(s, quants, blocks, lane, x);
                            self.out.store(s, rows.start + r, self.w, panel * PANEL + lane, &sums);
                        }
                    });
                }
            }
        }
    }
}

/// Some rows of a tile, from its first block on.
#[derive(Clone, Copy)]
struct TileRows {
    quants: *const i8,
    scales: *const f32,
    sums: *const i32,
    /// Rows of the whole tile: the distance from block to block.
    height: usize,
}

impl TileRows {
    #[inline(always)]
    unsafe fn block(self, block: usize) -> RowBlocks {
        // SAFETY: the caller passes a block of the tile.
        unsafe {
            let sums = self.sums.add(2 * block * self.height);
            RowBlocks {
                quants: self.quants.add(block * self.height * BLOCK),
                scales: self.scales.add(block * self.height),
                sums: [sums, sums.add(self.height)],
            }
        }
    }
}

/// Asks for `bytes` bytes from `p` on, unless another lane range of the panel already did.
#[inline(always)]
fn prefetch<S: Simd>(s: S, p: *const u8, bytes: usize, lane: usize) {
    if lane == 0 {
        (0..bytes).step_by(64).for_each(|at| s.prefetch(p.wrapping_add(at)));
    }
}

/// `N * H` rows times `LANES` features.
///
/// # Safety
/// `panel` points to a panel of `blocks` blocks; `x` to at least as many rows of a tile with as many blocks.
#[inline(always)]
unsafe fn block_tile<S: Simd, Q: BlockFormat, const N: usize, const H: usize>(
    s: S,
    panel: *const u8,
    blocks: usize,
    lane: usize,
    x: TileRows,
) -> [[S::F; N]; H] {
    // The fewer rows, the sooner the next block is needed.
    let ahead = if N * H >= 8 { 6 } else { 24 };
    let mut sums = [[s.splat(0.0); N]; H];
    // SAFETY: all pointers stay within the panel and the tile.
    unsafe {
        let scales = panel.add(blocks * Q::QUANTS);
        for block in 0..blocks {
            let w = Q::load(s, panel.add(block * Q::QUANTS), scales.add(block * Q::SCALES), lane);
            let x = x.block(block);
            prefetch(s, panel.wrapping_add((block + ahead) * Q::QUANTS), Q::QUANTS, lane);
            prefetch(s, scales.wrapping_add((block + ahead) * Q::SCALES), Q::SCALES, lane);
            for_each_group!(H, |h| sums[h] = Q::add_rows(s, &w, x.skip(h * N), sums[h]));
        }
    }
    sums
}

/// A product with F32, F16 or BF16 weights.
struct Floats<'a> {
    x: &'a Dense,
    w: &'a Part,
    out: Output<'a>,
    panels: Range<usize>,
    tiles: Range<usize>,
}

impl Kernel for Floats<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // The closures get a pointer to 16 elements, plus a lane.
        match self.w.ty {
            // SAFETY: within a panel of this type.
            WeightType::F32 => self.run_with(s, |p, at| unsafe { s.load(p.cast::<f32>().add(at)) }),
            // SAFETY: within a panel of this type.
            WeightType::F16 => self.run_with(s, |p, at| unsafe { s.load_f16(p.cast::<u16>().add(at)) }),
            // SAFETY: within a panel of this type.
            _ => self.run_with(s, |p, at| unsafe { s.load_bf16(p.cast::<u16>().add(at)) }),
        }
    }
}

impl Floats<'_> {
    #[inline(always)]
    fn run_with<S: Simd>(&self, s: S, load: impl Fn(*const u8, usize) -> S::F) {
        let shape = self.x.shape();
        for tile in self.tiles.clone() {
            let rows = shape.tile_rows(tile);
            let x = &self.x.values[tile * shape.tile * shape.columns..][..shape.tile * shape.columns];
            for panel in self.panels.clone() {
                let weights = self.w.panels[panel * self.w.panel_bytes()..][..self.w.panel_bytes()].as_ptr();
                for lane in (0..PANEL).step_by(S::LANES) {
                    for_row_groups!(S, rows.len(), |r, N, H| {
                        let mut sums = [[s.splat(0.0); N]; H];
                        for k in 0..shape.columns {
                            let w = load(weights, k * PANEL + lane);
                            for_each_group!(H, |h| for (n, sum) in sums[h].iter_mut().enumerate() {
                                // SAFETY: a row of this group in column `k`, within the tile.
                                let x = unsafe { *x.as_ptr().add(k * shape.tile + r + h * N + n) };
                                *sum = s.fma(s.splat(x), w, *sum);
                            });
                        }
                        // SAFETY: the results of an item are its own.
                        unsafe { self.out.store(s, rows.start + r, self.w, panel * PANEL + lane, &sums) };
                    });
                }
            }
        }
    }
}
