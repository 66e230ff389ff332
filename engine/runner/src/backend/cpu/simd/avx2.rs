//! AVX2 with FMA and F16C: 8 lanes, 16 registers.

use std::arch::x86_64::*;

use super::{Kernel, Simd};

/// The proof that the processor has `avx2`, `fma` and `f16c`.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend::cpu) struct Avx2(());

impl Avx2 {
    /// Whether this processor has the set.
    pub(in crate::backend::cpu) fn detected() -> bool {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
    }

    /// Runs a kernel.
    ///
    /// # Safety
    /// [`Avx2::detected`].
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(in crate::backend::cpu) unsafe fn enter<K: Kernel>(kernel: K) {
        kernel.run(Avx2(()));
    }
}

/// Wraps intrinsics whose only demand is that the processor has them.
macro_rules! here {
    ($e:expr) => {
        // SAFETY: a value of `Avx2` exists only where the processor has the set; pointers are the caller's contract.
        unsafe { $e }
    };
}

/// Sums pairs of 16-bit lanes into 32-bit lanes.
#[inline(always)]
fn widen(x: __m256i) -> __m256i {
    here!(_mm256_madd_epi16(x, _mm256_set1_epi16(1)))
}

impl Simd for Avx2 {
    const LANES: usize = 8;
    const TILE: usize = 4;
    const QUERY_TILE: usize = 12;

    type F = __m256;
    type I = __m256i;
    type B = __m256i;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        here!(_mm256_set1_ps(x))
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> Self::F {
        here!(_mm256_loadu_ps(p))
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, x: Self::F) {
        here!(_mm256_storeu_ps(p, x))
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> Self::F {
        here!(_mm256_cvtph_ps(_mm_loadu_si128(p.cast())))
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, x: Self::F) {
        here!(_mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x)))
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> Self::F {
        here!(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast())))))
    }
    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> Self::F {
        here!(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast()))))
    }
    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8, x: Self::I) {
        here!({
            let words = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
            _mm_storel_epi64(p.cast(), _mm_packs_epi16(words, words));
        })
    }

    #[inline(always)]
    fn prefetch<T>(self, p: *const T) {
        here!(_mm_prefetch::<_MM_HINT_T0>(p.cast()));
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        here!(_mm256_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        here!(_mm256_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        here!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        here!(_mm256_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        here!(_mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        here!(_mm256_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        here!(_mm256_min_ps(a, b))
    }
    #[inline(always)]
    fn first(self, x: Self::F, n: isize, fill: f32) -> Self::F {
        here!({
            let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let keep = _mm256_cmpgt_epi32(_mm256_set1_epi32(n.clamp(0, 8) as i32), lane);
            _mm256_blendv_ps(_mm256_set1_ps(fill), x, _mm256_castsi256_ps(keep))
        })
    }
    #[inline(always)]
    fn zero_below(self, x: Self::F, key: Self::F, limit: f32) -> Self::F {
        here!(_mm256_and_ps(x, _mm256_cmp_ps::<_CMP_NLT_UQ>(key, _mm256_set1_ps(limit))))
    }
    #[inline(always)]
    fn sum(self, x: Self::F) -> f32 {
        here!({
            let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)))
        })
    }
    #[inline(always)]
    fn max_lane(self, x: Self::F) -> f32 {
        here!({
            let x = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)))
        })
    }
    #[inline(always)]
    fn round(self, x: Self::F) -> Self::I {
        here!(_mm256_cvtps_epi32(x))
    }
    #[inline(always)]
    fn to_f32(self, x: Self::I) -> Self::F {
        here!(_mm256_cvtepi32_ps(x))
    }
    #[inline(always)]
    fn exp2(self, n: Self::I) -> Self::F {
        here!(_mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(n, _mm256_set1_epi32(127)))))
    }

    #[inline(always)]
    unsafe fn load_bytes(self, p: *const u8) -> Self::B {
        here!(_mm256_loadu_si256(p.cast()))
    }
    #[inline(always)]
    fn low_nibbles(self, x: Self::B) -> Self::B {
        here!(_mm256_and_si256(x, _mm256_set1_epi8(15)))
    }
    #[inline(always)]
    fn high_nibbles(self, x: Self::B) -> Self::B {
        here!(_mm256_and_si256(_mm256_srli_epi16::<4>(x), _mm256_set1_epi8(15)))
    }
    #[inline(always)]
    fn with_two_bits<const SHIFT: i32>(self, low: Self::B, x: Self::B) -> Self::B {
        let x = match SHIFT {
            0 => here!(_mm256_slli_epi16::<4>(x)),
            2 => here!(_mm256_slli_epi16::<2>(x)),
            4 => x,
            _ => here!(_mm256_srli_epi16::<2>(x)),
        };
        here!(_mm256_or_si256(low, _mm256_and_si256(x, _mm256_set1_epi8(0x30))))
    }
    /// Pair sums stay in 16 bits as long as they surely fit: `8 * 2 * 15 * 127` and `2 * 2 * 63 * 127` do.
    #[inline(always)]
    unsafe fn dot<const BITS: u32, const G: usize, const N: usize>(
        self,
        w: &[Self::B; G],
        x: [*const i8; N],
        init: [*const i32; N],
    ) -> [Self::I; N] {
        const { assert!(BITS == 4 && G <= 8 || BITS == 6) };
        let run = if BITS == 4 { 8 } else { 2 };
        let mut sums = init.map(|init| here!(_mm256_set1_epi32(init.read())));
        let mut pairs = [here!(_mm256_setzero_si256()); N];
        for (g, &w) in w.iter().enumerate() {
            for n in 0..N {
                let x = here!(_mm256_set1_epi32(x[n].cast::<i32>().add(g).read_unaligned()));
                let products = here!(_mm256_maddubs_epi16(w, x));
                pairs[n] = if g % run == 0 { products } else { here!(_mm256_add_epi16(pairs[n], products)) };
                if g % run == run - 1 || g == G - 1 {
                    sums[n] = here!(_mm256_add_epi32(sums[n], widen(pairs[n])));
                }
            }
        }
        sums
    }
    #[inline(always)]
    fn prepare_bytes(self, x: Self::B) -> Self::B {
        here!(_mm256_xor_si256(x, _mm256_set1_epi8(-128)))
    }
    /// `|w| * (x with the sign of w)`: no pair exceeds `2 * 128 * 127`, where unsigned weights would saturate.
    #[inline(always)]
    unsafe fn dot_bytes<const G: usize, const N: usize>(
        self,
        w: &[Self::B; G],
        x: [*const i8; N],
        _init: [*const i32; N],
    ) -> [Self::I; N] {
        let mut sums = [here!(_mm256_setzero_si256()); N];
        for (g, &w) in w.iter().enumerate() {
            let magnitude = here!(_mm256_abs_epi8(w));
            for n in 0..N {
                here!({
                    let x = _mm256_set1_epi32(x[n].cast::<i32>().add(g).read_unaligned());
                    let products = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(x, w));
                    sums[n] = _mm256_add_epi32(sums[n], widen(products));
                });
            }
        }
        sums
    }
}
