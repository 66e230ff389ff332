//! AVX-512 with VNNI: 16 lanes, 32 registers, four byte products in one instruction.

use std::arch::x86_64::*;

use super::{Kernel, Simd};

/// The proof that the processor has `avx512f`, `avx512bw`, `avx512vl`, `avx512vnni`, `avx2`, `fma` and `f16c`.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend::cpu) struct Avx512(());

impl Avx512 {
    /// Whether this processor has the set.
    pub(in crate::backend::cpu) fn detected() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
    }

    /// Runs a kernel.
    ///
    /// # Safety
    /// [`Avx512::detected`].
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
    pub(in crate::backend::cpu) unsafe fn enter<K: Kernel>(kernel: K) {
        kernel.run(Avx512(()));
    }
}

/// Wraps intrinsics whose only demand is that the processor has them.
macro_rules! here {
    ($e:expr) => {
        // SAFETY: a value of `Avx512` exists only where the processor has the set; pointers are the caller's contract.
        unsafe { $e }
    };
}

impl Simd for Avx512 {
    const LANES: usize = 16;
    const TILE: usize = 16;
    const QUERY_TILE: usize = 12;

    type F = __m512;
    type I = __m512i;
    type B = __m512i;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        here!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> Self::F {
        here!(_mm512_loadu_ps(p))
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, x: Self::F) {
        here!(_mm512_storeu_ps(p, x))
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> Self::F {
        here!(_mm512_cvtph_ps(_mm256_loadu_si256(p.cast())))
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, x: Self::F) {
        here!(_mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x)))
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> Self::F {
        here!(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(
            p.cast()
        )))))
    }
    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> Self::F {
        here!(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()))))
    }
    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8, x: Self::I) {
        here!(_mm_storeu_si128(p.cast(), _mm512_cvtepi32_epi8(x)))
    }

    #[inline(always)]
    fn prefetch<T>(self, p: *const T) {
        here!(_mm_prefetch::<_MM_HINT_T0>(p.cast()));
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        here!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        here!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        here!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        here!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        here!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        here!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        here!(_mm512_min_ps(a, b))
    }
    #[inline(always)]
    fn first(self, x: Self::F, n: isize, fill: f32) -> Self::F {
        let mask = ((1u32 << n.clamp(0, 16)) - 1) as u16;
        here!(_mm512_mask_blend_ps(mask, _mm512_set1_ps(fill), x))
    }
    #[inline(always)]
    fn zero_below(self, x: Self::F, key: Self::F, limit: f32) -> Self::F {
        here!(_mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_NLT_UQ>(key, _mm512_set1_ps(limit)), x))
    }
    #[inline(always)]
    fn sum(self, x: Self::F) -> f32 {
        here!(_mm512_reduce_add_ps(x))
    }
    #[inline(always)]
    fn max_lane(self, x: Self::F) -> f32 {
        here!(_mm512_reduce_max_ps(x))
    }
    #[inline(always)]
    fn round(self, x: Self::F) -> Self::I {
        here!(_mm512_cvtps_epi32(x))
    }
    #[inline(always)]
    fn to_f32(self, x: Self::I) -> Self::F {
        here!(_mm512_cvtepi32_ps(x))
    }
    #[inline(always)]
    fn exp2(self, n: Self::I) -> Self::F {
        here!(_mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_add_epi32(n, _mm512_set1_epi32(127)))))
    }

    #[inline(always)]
    unsafe fn load_bytes(self, p: *const u8) -> Self::B {
        here!(_mm512_loadu_si512(p.cast()))
    }
    #[inline(always)]
    fn low_nibbles(self, x: Self::B) -> Self::B {
        here!(_mm512_and_si512(x, _mm512_set1_epi8(15)))
    }
    #[inline(always)]
    fn high_nibbles(self, x: Self::B) -> Self::B {
        here!(_mm512_and_si512(_mm512_srli_epi16::<4>(x), _mm512_set1_epi8(15)))
    }
    #[inline(always)]
    fn with_two_bits<const SHIFT: i32>(self, low: Self::B, x: Self::B) -> Self::B {
        let x = match SHIFT {
            0 => here!(_mm512_slli_epi16::<4>(x)),
            2 => here!(_mm512_slli_epi16::<2>(x)),
            4 => x,
            _ => here!(_mm512_srli_epi16::<2>(x)),
        };
        here!(_mm512_or_si512(low, _mm512_and_si512(x, _mm512_set1_epi8(0x30))))
    }
    #[inline(always)]
    unsafe fn dot<const BITS: u32, const G: usize, const N: usize>(
        self,
        w: &[Self::B; G],
        x: [*const i8; N],
        init: [*const i32; N],
    ) -> [Self::I; N] {
        let mut sums = init.map(|init| here!(_mm512_set1_epi32(init.read())));
        for (g, &w) in w.iter().enumerate() {
            for n in 0..N {
                let x = here!(_mm512_set1_epi32(x[n].cast::<i32>().add(g).read_unaligned()));
                sums[n] = here!(_mm512_dpbusd_epi32(sums[n], w, x));
            }
        }
        sums
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
