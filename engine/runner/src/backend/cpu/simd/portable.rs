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

const N: usize = 16;

#[inline(always)]
fn zip(a: [f32; N], b: [f32; N], f: impl Fn(f32, f32) -> f32) -> [f32; N] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

impl Simd for Portable {
    const LANES: usize = N;
    const TILE: usize = 4;
    const QUERY_TILE: usize = 4;

    type F = [f32; N];
    type I = [i32; N];
    type B = [u8; 4 * N];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [x; N]
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
        unsafe { p.cast::<[u16; N]>().read_unaligned() }.map(|x| f16::from_bits(x).to_f32())
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { p.cast::<[u16; N]>().read_unaligned() }.map(|x| bf16::from_bits(x).to_f32())
    }
    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> Self::F {
        // SAFETY: the caller's contract.
        unsafe { p.cast::<[i8; N]>().read_unaligned() }.map(f32::from)
    }
    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8, x: Self::I) {
        // SAFETY: the caller's contract.
        unsafe { p.cast::<[i8; N]>().write_unaligned(x.map(|x| x as i8)) }
    }

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
    unsafe fn dot<const BITS: u32, const G: usize>(
        self,
        w: &[Self::B; G],
        x: *const i8,
        init: *const i32,
    ) -> Self::I {
        // SAFETY: the caller's contract.
        let (x, init) = unsafe { (x.cast::<[[i8; 4]; G]>().read_unaligned(), init.read_unaligned()) };
        let mut sums = [init; N];
        for (w, x) in w.iter().zip(x) {
            for (sum, w) in sums.iter_mut().zip(w.chunks_exact(4)) {
                *sum += (0..4).map(|j| i32::from(w[j]) * i32::from(x[j])).sum::<i32>();
            }
        }
        sums
    }
    #[inline(always)]
    fn prepare_bytes(self, x: Self::B) -> Self::B {
        x
    }
    #[inline(always)]
    unsafe fn dot_bytes<const G: usize>(self, w: &[Self::B; G], x: *const i8, init: *const i32) -> Self::I {
        // SAFETY: the caller's contract.
        unsafe { self.dot::<8, G>(w, x, init) }
    }
}
