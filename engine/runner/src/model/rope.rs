//! Angular frequencies of the rotary embedding.

use std::f64::consts::TAU;

use crate::config::{Rope, RopeScaling};

/// `head_dim / 2` frequencies, in radians per position: `theta^(-2 i / head_dim)`, then scaled.
pub(super) fn frequencies(rope: &Rope, head_dim: usize) -> Vec<f32> {
    let base = f64::from(rope.theta);
    let plain = (0..head_dim / 2).map(|i| base.powf(-((2 * i) as f64) / head_dim as f64));
    let scaled = plain.enumerate().map(|(i, frequency)| match &rope.scaling {
        RopeScaling::None => frequency,
        RopeScaling::Linear { factor } => frequency / f64::from(*factor),
        RopeScaling::Divisors { divisors } => frequency / f64::from(divisors[i]),
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position_embeddings,
        } => {
            // Waves that fit the original context more than `high` times are kept, those that fit less than `low`
            // times are stretched, and between the two the change is linear (Llama 3's published code).
            let (low, high) = (f64::from(*low_freq_factor), f64::from(*high_freq_factor));
            let turns = f64::from(*original_max_position_embeddings) * frequency / TAU;
            let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
            kept * frequency + (1.0 - kept) * frequency / f64::from(*factor)
        }
    });
    scaled.map(|frequency| frequency as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::RopePairs;

    fn rope(scaling: RopeScaling) -> Rope {
        Rope { theta: 10_000.0, scaling, pairs: RopePairs::Halves }
    }

    #[test]
    fn plain_frequencies_fall_from_one_by_powers_of_theta() {
        let frequencies = frequencies(&rope(RopeScaling::None), 8);
        for (found, expected) in frequencies.iter().zip([1.0, 0.1, 0.01, 0.001]) {
            assert!((found / expected - 1.0).abs() < 1e-6, "{found} is not {expected}");
        }
    }

    #[test]
    fn llama3_scaling_keeps_short_waves_and_stretches_long_ones() {
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 64.0,
        };
        let plain = frequencies(&rope(RopeScaling::None), 8);
        let scaled = frequencies(&rope(scaling), 8);
        assert_eq!(scaled[0], plain[0]);
        // 64 tokens are 1.0186 turns of the second wave: 0.0062 of the way from stretched to kept.
        let kept = (64.0 * 0.1 / TAU - 1.0) / 3.0;
        assert!((f64::from(scaled[1]) - (kept * 0.1 + (1.0 - kept) * 0.0125)).abs() < 1e-8);
        assert!((scaled[3] * 8.0 / plain[3] - 1.0).abs() < 1e-6);
    }
}
