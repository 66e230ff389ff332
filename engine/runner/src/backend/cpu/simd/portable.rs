//! Plain Rust: what any processor runs, and what the other instruction sets are tested against.

use half::{bf16, f16};

use super::{Kernel, Simd};

/// Vectors as arrays.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend::cpu) struct Portable;

impl Portable {
    /// Runs a kernel.
    pub(in crate::backend::cpu) fn enter<K: Kernel>(kernel: K) {
        kernel.run(Portable);
    }
}

const LANES: usize = 16;

#[inline(always)]
fn zip(a: [f32; LANES], b: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> [f32; LANES] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

impl Simd for Portable {
    const LANES: usize = LANES;
    const TILE: usize = 4;
    const QUERY_TILE: usize = 4;

    type F = [f32; LANES];
    type I = [i32; LANES];
    type B = [u8; 4 * LANES];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [x; LANES]
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { p.cast::<Self::F>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, x: Self::F) {
        // SAFETY: the caller's contract.
        unsafe { p.cast::<Self::F>().write_unaligned(x) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { p.cast::<[u16; LANES]>().read_unaligned() }.map(|x| f16::from_bits(x).to_f32())
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, x: Self::F) {
        // SAFETY: the caller's contract.
        unsafe { p.cast::<[u16; LANES]>().write_unaligned(x.map(|x| f16::from_f32(x).to_bits())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { p.cast::<[u16; LANES]>().read_unaligned() }.map(|x| bf16::from_bits(x).to_f32())
    }
    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { p.cast::<[i8; LANES]>().read_unaligned() }.map(f32::from)
    }
    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8, x: Self::I) {
        // SAFETY: the caller's contract.
        unsafe { p.cast::<[i8; LANES]>().write_unaligned(x.map(|x| x as i8)) }
    }

    #[inline(always)]
    fn prefetch<T>(self, _p: *const T) {}

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn first(self, x: Self::F, n: isize, fill: f32) -> Self::F {
        std::array::from_fn(|i| if (i as isize) < n { x[i] } else { fill })
    }
    #[inline(always)]
    fn zero_below(self, x: Self::F, key: Self::F, limit: f32) -> Self::F {
        zip(x, key, |x, key| if key < limit { 0.0 } else { x })
    }
    #[inline(always)]
    fn sum(self, x: Self::F) -> f32 {
        x.iter().sum()
    }
    #[inline(always)]
    fn max_lane(self, x: Self::F) -> f32 {
        x.iter().copied().fold(f32::NEG_INFINITY, f32::max)
    }
    #[inline(always)]
    fn round(self, x: Self::F) -> Self::I {
        x.map(|x| x.round_ties_even() as i32)
    }
    #[inline(always)]
    fn to_f32(self, x: Self::I) -> Self::F {
        x.map(|x| x as f32)
    }
    #[inline(always)]
    fn exp2(self, n: Self::I) -> Self::F {
        n.map(|n| f32::from_bits(((n + 127) as u32) << 23))
    }

    #[inline(always)]
    unsafe fn load_bytes(self, p: *const u8) -> Self::B {
        // SAFETY: the caller's contract.
        unsafe { p.cast::<Self::B>().read_unaligned() }
    }
    #[inline(always)]
    fn low_nibbles(self, x: Self::B) -> Self::B {
        x.map(|x| x & 15)
    }
    #[inline(always)]
    fn high_nibbles(self, x: Self::B) -> Self::B {
        x.map(|x| x >> 4)
    }
    #[inline(always)]
    fn with_two_bits<const SHIFT: i32>(self, low: Self::B, x: Self::B) -> Self::B {
        std::array::from_fn(|i| low[i] | (x[i] >> SHIFT & 3) << 4)
    }
    #[inline(always)]
    unsafe fn dot<const BITS: u32, const G: usize, const N: usize>(
        self,
        w: &[Self::B; G],
        x: [*const i8; N],
        init: [*const i32; N],
    ) -> [Self::I; N] {
        std::array::from_fn(|n| {
            // SAFETY: the caller's contract.
            let (x, init) = unsafe { (x[n].cast::<[[i8; 4]; G]>().read_unaligned(), init[n].read()) };
            let mut sums = [init; LANES];
            for (w, x) in w.iter().zip(x) {
                for (sum, w) in sums.iter_mut().zip(w.chunks_exact(4)) {
                    *sum += (0..4).map(|j| i32::from(w[j]) * i32::from(x[j])).sum::<i32>();
                }
            }
            sums
        })
    }
    #[inline(always)]
    fn prepare_bytes(self, x: Self::B) -> Self::B {
        x
    }
    #[inline(always)]
    unsafe fn dot_bytes<const G: usize, const N: usize>(
        self,
        w: &[Self::B; G],
        x: [*const i8; N],
        init: [*const i32; N],
    ) -> [Self::I; N] {
        // SAFETY: the caller's contract.
        unsafe { self.dot::<8, G, N>(w, x, init) }
    }
}
