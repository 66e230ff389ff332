//! Operations on single rows: normalisation, gating, sums.

use super::isa::Isa;
use super::memory::Shared;
use super::simd::{Kernel, Simd, math};
use super::threads::Pool;

/// Elements that one item works on, about; less work than that runs on the calling thread.
const ITEM_LEN: usize = 16 << 10;

/// Runs `job` with ranges of rows.
pub(super) fn for_rows(pool: &Pool, rows: usize, width: usize, job: impl Fn(std::ops::Range<usize>) + Sync) {
    let per_item = (ITEM_LEN / width.max(1)).max(1);
    pool.run(rows.div_ceil(per_item), &|item| job(item * per_item..rows.min((item + 1) * per_item)));
}

/// Applies `vector` to the whole vectors of a range and `scalar` to what is left.
#[inline(always)]
fn for_lanes<S: Simd>(_: S, len: usize, mut vector: impl FnMut(usize), mut scalar: impl FnMut(usize)) {
    let whole = len / S::LANES * S::LANES;
    for i in (0..whole).step_by(S::LANES) {
        vector(i);
    }
    for i in whole..len {
        scalar(i);
    }
}

/// `out = x / sqrt(mean(x^2) + eps) * weight`, by row.
pub(super) fn rms_norm(isa: Isa, pool: &Pool, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let width = weight.len();
    assert!(x.len() == out.len() && x.len().is_multiple_of(width));
    let out = Shared::new(out);
    for_rows(pool, x.len() / width, width, |rows| {
        let range = rows.start * width..rows.end * width;
        // SAFETY: rows of this item.
        let out = unsafe { out.part(range.clone()) };
        isa.run(RmsNorm { x: &x[range], weight, eps, out });
    });
}

struct RmsNorm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
    out: &'a mut [f32],
}

impl Kernel for RmsNorm<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.weight.len();
        for (x, out) in self.x.chunks_exact(width).zip(self.out.chunks_exact_mut(width)) {
            let (mut squares, mut rest) = (s.splat(0.0), 0.0);
            for_lanes(
                s,
                width,
                |i| {
                    // SAFETY: a whole vector within the row.
                    let v = unsafe { s.load(x.as_ptr().add(i)) };
                    squares = s.fma(v, v, squares);
                },
                |i| rest += x[i] * x[i],
            );
            let scale = 1.0 / ((s.sum(squares) + rest) / width as f32 + self.eps).sqrt();
            for (out, (&x, &weight)) in out.iter_mut().zip(x.iter().zip(self.weight)) {
                *out = x * scale * weight;
            }
        }
    }
}

/// `x += y`.
pub(super) fn add_assign(isa: Isa, pool: &Pool, x: &mut [f32], y: &[f32]) {
    assert_eq!(x.len(), y.len());
    let len = x.len();
    let x = Shared::new(x);
    for_rows(pool, len, 1, |range| {
        // SAFETY: the range of this item.
        isa.run(AddAssign { x: unsafe { x.part(range.clone()) }, y: &y[range] });
    });
}

struct AddAssign<'a> {
    x: &'a mut [f32],
    y: &'a [f32],
}

impl Kernel for AddAssign<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        self.x.iter_mut().zip(self.y).for_each(|(x, y)| *x += y);
    }
}

/// `out = silu(gate) * up`, where a row of `gate_up` is `[gate | up]` and a row of `out` has `width` elements.
pub(super) fn silu_mul(isa: Isa, pool: &Pool, gate_up: &[f32], width: usize, out: &mut [f32]) {
    assert!(gate_up.len() == 2 * out.len() && out.len().is_multiple_of(width));
    let rows = out.len() / width;
    let out = Shared::new(out);
    for_rows(pool, rows, width, |rows| {
        // SAFETY: rows of this item.
        let out = unsafe { out.part(rows.start * width..rows.end * width) };
        isa.run(SiluMul { gate_up: &gate_up[2 * rows.start * width..2 * rows.end * width], width, out });
    });
}

struct SiluMul<'a> {
    gate_up: &'a [f32],
    width: usize,
    out: &'a mut [f32],
}

impl Kernel for SiluMul<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.width;
        for (row, out) in self.gate_up.chunks_exact(2 * width).zip(self.out.chunks_exact_mut(width)) {
            let (gate, up) = row.split_at(width);
            for_lanes(
                s,
                width,
                // SAFETY: whole vectors within the three rows.
                |i| unsafe {
                    let gate = math::silu(s, s.load(gate.as_ptr().add(i)));
                    s.store(out.as_mut_ptr().add(i), s.mul(gate, s.load(up.as_ptr().add(i))));
                },
                |_| {},
            );
            let whole = width / S::LANES * S::LANES;
            if whole < width {
                let mut last = [0.0; 16];
                last[..width - whole].copy_from_slice(&gate[whole..]);
                // SAFETY: a vector has at most 16 lanes.
                unsafe { s.store(last.as_mut_ptr(), math::silu(s, s.load(last.as_ptr()))) };
                for i in whole..width {
                    out[i] = last[i - whole] * up[i];
                }
            }
        }
    }
}
