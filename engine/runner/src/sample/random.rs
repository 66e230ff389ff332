//! Counter-based random numbers: the draw for a token depends on nothing but (seed, choice, position), so that
//! preemption, batching and speculation change nothing.

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
    const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
    for _ in 0..10 {
        let first = u64::from(MULTIPLIERS[0]) * u64::from(counter[0]);
        let second = u64::from(MULTIPLIERS[1]) * u64::from(counter[2]);
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// A number in `[0, 1)` with 53 random bits.
pub(super) fn uniform(seed: u64, choice: u32, position: u32) -> f64 {
    let [low, high, _, _] = philox([position, choice, 0, 0], [seed as u32, (seed >> 32) as u32]);
    let bits = u64::from(high) << 32 | u64::from(low);
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_published_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn every_part_of_the_counter_changes_the_draw() {
        let draws =
            [uniform(1, 0, 0), uniform(2, 0, 0), uniform(1 << 32, 0, 0), uniform(1, 1, 0), uniform(1, 0, 1)];
        for (i, a) in draws.iter().enumerate() {
            assert!((0.0..1.0).contains(a));
            assert!(draws[..i].iter().all(|b| a != b));
        }
    }
}
