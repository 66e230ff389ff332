//! Activations in the form that the matrix kernels read: cut into tiles of rows, so that the rows of a tile lie side
//! by side for every block of input features.
//!
//! ```text
//!  quants   [tile][block][row of tile][32]     signed bytes, x = scale * q
//!  scales   [tile][block][row of tile]         F32
//!  sums     [tile][block][2][row of tile]      what the weights' offset needs, see `Offset`
//!  dense    [tile][column][row of tile]        F32, for weights that are not quantised
//! ```

use super::isa::Isa;
use super::matrix::BLOCK;
use super::memory::Shared;
use super::simd::{Kernel, Simd};
use super::threads::Pool;
use crate::weights::WeightType;

/// Rows of a tile when there are as many.
pub(super) const TILE_ROWS: usize = 16;

/// Where activations stand: rows, columns, and rows of a full tile.
#[derive(Clone, Copy, Debug)]
pub(super) struct TileShape {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) tile: usize,
}

impl TileShape {
    fn new(rows: usize, columns: usize) -> Self {
        Self { rows, columns, tile: rows.clamp(1, TILE_ROWS) }
    }

    pub(super) fn num_tiles(self) -> usize {
        self.rows.div_ceil(self.tile)
    }

    pub(super) fn blocks(self) -> usize {
        self.columns / BLOCK
    }

    /// Rows of tile `tile`.
    pub(super) fn tile_rows(self, tile: usize) -> std::ops::Range<usize> {
        tile * self.tile..self.rows.min((tile + 1) * self.tile)
    }
}

/// The two words kept for each row of a block: what a stored weight's offset contributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offset {
    /// `scale * sum(q)` as F32 bits: the weights have a minimum of their own.
    Minimum,
    /// `-offset * sum(q)` over the block.
    Whole(i32),
    /// The same over each half of the block.
    Halves(i32),
}

impl Offset {
    fn of(ty: WeightType) -> Self {
        match ty {
            WeightType::Q4_1 => Self::Minimum,
            WeightType::Q4_0 => Self::Whole(-8),
            WeightType::Q6_K => Self::Halves(-32),
            _ => Self::Whole(-128),
        }
    }
}

/// Quantised activations; its memory is used again from call to call.
#[derive(Default)]
pub(super) struct Quantized {
    shape: Option<TileShape>,
    pub(super) quants: Vec<i8>,
    pub(super) scales: Vec<f32>,
    pub(super) sums: Vec<i32>,
}

/// Grows `v` so that it holds `len` elements.
fn hold<T: Copy + Default>(v: &mut Vec<T>, len: usize) {
    if v.len() < len {
        v.resize(len, T::default());
    }
}

/// Rows that one item converts.
const ROWS_PER_ITEM: usize = 4;

impl Quantized {
    pub(super) fn shape(&self) -> TileShape {
        self.shape.expect("activations are quantised before they are multiplied")
    }

    /// Quantises `rows` rows of `x` for weights of type `ty`: each block of 32 by its greatest magnitude to bytes
    /// in -127..=127.
    pub(super) fn fill(&mut self, isa: Isa, pool: &Pool, x: &[f32], rows: usize, ty: WeightType) {
        let shape = TileShape::new(rows, x.len() / rows.max(1));
        assert_eq!(x.len(), rows * shape.columns);
        assert_eq!(shape.columns % BLOCK, 0);
        self.shape = Some(shape);
        let slots = shape.num_tiles() * shape.tile * shape.blocks();
        hold(&mut self.quants, slots * BLOCK);
        hold(&mut self.scales, slots);
        hold(&mut self.sums, 2 * slots);
        let target = QuantizeRows {
            x,
            shape,
            offset: Offset::of(ty),
            quants: Shared::new(&mut self.quants[..slots * BLOCK]),
            scales: Shared::new(&mut self.scales[..slots]),
            sums: Shared::new(&mut self.sums[..2 * slots]),
            row_range: 0..0,
        };
        pool.run(rows.div_ceil(ROWS_PER_ITEM), &|item| {
            let row_range = item * ROWS_PER_ITEM..rows.min((item + 1) * ROWS_PER_ITEM);
            isa.run(QuantizeRows { row_range, ..target.clone() });
        });
    }
}

#[derive(Clone)]
struct QuantizeRows<'a> {
    x: &'a [f32],
    shape: TileShape,
    offset: Offset,
    quants: Shared<'a, i8>,
    scales: Shared<'a, f32>,
    sums: Shared<'a, i32>,
    row_range: std::ops::Range<usize>,
}

impl Kernel for QuantizeRows<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (columns, height) = (self.shape.columns, self.shape.tile);
        for row in self.row_range.clone() {
            let (tile, r) = (row / height, row % height);
            let x = &self.x[row * columns..][..columns];
            for (block, x) in x.chunks_exact(BLOCK).enumerate() {
                let slot = (tile * self.shape.blocks() + block) * height + r;
                // SAFETY: slots of this row; a row belongs to one item.
                let (quants, scale) = unsafe {
                    (self.quants.part(slot * BLOCK..(slot + 1) * BLOCK), self.scales.part(slot..slot + 1))
                };
                scale[0] = quantize_block(s, x, quants);
                let (low, high) = quants.split_at(BLOCK / 2);
                let sum = |q: &[i8]| q.iter().map(|&q| i32::from(q)).sum::<i32>();
                let words = match self.offset {
                    Offset::Minimum => [(scale[0] * (sum(low) + sum(high)) as f32).to_bits() as i32, 0],
                    Offset::Whole(offset) => [offset * (sum(low) + sum(high)), 0],
                    Offset::Halves(offset) => [offset * sum(low), offset * sum(high)],
                };
                let at = slot - r;
                for (half, word) in words.into_iter().enumerate() {
                    let place = 2 * at + half * height + r;
                    // SAFETY: as above.
                    unsafe { self.sums.part(place..place + 1)[0] = word };
                }
            }
        }
    }
}

/// Below this magnitude a block counts as zeros, since its inverse scale would overflow.
const LEAST_MAGNITUDE: f32 = 1e-30;

/// Quantises 32 values and gives their scale.
#[inline(always)]
fn quantize_block<S: Simd>(s: S, x: &[f32], quants: &mut [i8]) -> f32 {
    assert!(x.len() == BLOCK && quants.len() == BLOCK);
    let mut greatest = s.splat(0.0);
    for i in (0..BLOCK).step_by(S::LANES) {
        // SAFETY: `i + LANES <= 32` elements, checked above.
        let v = unsafe { s.load(x.as_ptr().add(i)) };
        greatest = s.max(s.max(v, s.sub(s.splat(0.0), v)), greatest);
    }
    let greatest = s.max_lane(greatest);
    let inverse = s.splat(if greatest > LEAST_MAGNITUDE { 127.0 / greatest } else { 0.0 });
    for i in (0..BLOCK).step_by(S::LANES) {
        // SAFETY: as above; the products are within -127..=127 up to rounding, or not a number.
        unsafe {
            let q = s.round(s.mul(s.load(x.as_ptr().add(i)), inverse));
            s.store_i8(quants.as_mut_ptr().add(i), q);
        }
    }
    greatest / 127.0
}

/// F32 activations in tiles; its memory is used again from call to call.
#[derive(Default)]
pub(super) struct Dense {
    shape: Option<TileShape>,
    pub(super) values: Vec<f32>,
}

impl Dense {
    pub(super) fn shape(&self) -> TileShape {
        self.shape.expect("activations are arranged before they are multiplied")
    }

    /// Arranges `rows` rows of `x` in tiles.
    pub(super) fn fill(&mut self, pool: &Pool, x: &[f32], rows: usize) {
        let shape = TileShape::new(rows, x.len() / rows.max(1));
        self.shape = Some(shape);
        let tile_len = shape.tile * shape.columns;
        hold(&mut self.values, shape.num_tiles() * tile_len);
        let values = Shared::new(&mut self.values);
        pool.run(shape.num_tiles(), &|tile| {
            // SAFETY: one tile, and each tile is one item.
            let values = unsafe { values.part(tile * tile_len..(tile + 1) * tile_len) };
            for (r, row) in shape.tile_rows(tile).enumerate() {
                let x = &x[row * shape.columns..][..shape.columns];
                for (column, &x) in x.iter().enumerate() {
                    values[column * shape.tile + r] = x;
                }
            }
        });
    }
}
