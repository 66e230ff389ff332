//! Elementary functions on vectors.

use super::Simd;

/// Below this, [`exp`] gives exactly 0.
const EXP_MIN: f32 = -87.0;
/// Above this, [`exp`] stays at its greatest value.
const EXP_MAX: f32 = 88.0;
/// ln 2 in two parts: the first has few bits, so that its product with a small integer is exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;

/// `e^x` within 3e-7 relative, by `2^n * e^r` with `|r| <= ln(2) / 2` and Taylor's series for `e^r`.
#[inline(always)]
pub(in crate::backend::cpu) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    let bounded = s.min(s.max(x, s.splat(EXP_MIN)), s.splat(EXP_MAX));
    let n = s.round(s.mul(bounded, s.splat(std::f32::consts::LOG2_E)));
    let minus_n = s.sub(s.splat(0.0), s.to_f32(n));
    let r = s.fma(minus_n, s.splat(LN2_LOW), s.fma(minus_n, s.splat(LN2_HIGH), bounded));
    let mut series = s.splat(1.0 / 720.0);
    for coefficient in [1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        series = s.fma(series, r, s.splat(coefficient));
    }
    s.zero_below(s.mul(series, s.exp2(n)), x, EXP_MIN)
}

/// `x / (1 + e^-x)`.
#[inline(always)]
pub(in crate::backend::cpu) fn silu<S: Simd>(s: S, x: S::F) -> S::F {
    let e = exp(s, s.sub(s.splat(0.0), x));
    s.div(x, s.add(s.splat(1.0), e))
}
