//! `exp` over whole vocabularies.

/// `exp(x)` for `x <= 0`, to about one unit in the last place; 0 below -87 and for NaN.
///
/// Branch-free, so that loops over it become vector code: `x = n ln 2 + r`, a polynomial for `exp(r)` (the
/// coefficients are those of Cephes' `expf`), and `n` added to the exponent's bits.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let inside = x >= -87.0;
    let x = if inside { x } else { 0.0 };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * LN2_HIGH - n * LN2_LOW;
    let mut y = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        y = y * r + coefficient;
    }
    let y = y * r * r + r + 1.0;
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()));
    if inside { y * power } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::exp;

    #[test]
    fn it_is_close_to_the_exact_exponential() {
        for step in 0..200_000 {
            let x = -87.0 * step as f32 / 200_000.0;
            let exact = f64::from(x).exp();
            assert!((f64::from(exp(x)) / exact - 1.0).abs() < 2e-7, "exp({x}) is {}, not {exact}", exp(x));
        }
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn what_is_far_away_or_no_number_weighs_nothing() {
        for x in [-87.1, -1e30, f32::NEG_INFINITY, f32::NAN] {
            assert_eq!(exp(x), 0.0);
        }
    }
}
