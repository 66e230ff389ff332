use proptest::prelude::*;

use super::*;
use crate::backend::BackendError;

fn linear(backend: &CpuBackend, x: &[f32], rows: usize, w: &super::super::CpuMatrix) -> Vec<f32> {
    let x = buffer(backend, rows, x);
    let mut out = backend.alloc(rows, w.rows).unwrap();
    backend.linear_into(&x, w, &mut out);
    out.values().to_vec()
}

/// Activations as the block formats take them: to signed bytes, by blocks of 32.
fn rounded(x: &[f32]) -> Vec<f32> {
    x.chunks(32)
        .flat_map(|block| {
            let scale = block.iter().fold(0.0f32, |most, x| most.max(x.abs())) / 127.0;
            block.iter().map(move |x| (x / scale).round_ties_even() * scale)
        })
        .collect()
}

/// The product in double precision, with the sum of the terms' magnitudes.
fn exact(x: &[f32], w: &[f32], columns: usize) -> Vec<(f64, f64)> {
    let mut out = Vec::new();
    for x in x.chunks_exact(columns) {
        for w in w.chunks_exact(columns) {
            let terms = x.iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w));
            out.push((terms.clone().sum(), terms.map(f64::abs).sum()));
        }
    }
    out
}

#[test]
fn products_agree_with_exact_arithmetic_for_every_type_and_instruction_set() {
    let mut random = Random(7);
    for ty in ALL_TYPES {
        for (rows, features, columns) in [(1, 16, 256), (3, 37, 512), (16, 48, 256), (21, 20, 768)] {
            let data = random.weight(ty, features, columns);
            let x = random.floats(rows * columns);
            let quantized = ty.block_len() > 1;
            let inputs = if quantized { rounded(&x) } else { x.clone() };
            let expected = exact(&inputs, &dequantize(ty, &data), columns);
            for backend in backends() {
                let w = backend.pack(&view(ty, features, columns, &data)).unwrap();
                let got = linear(&backend, &x, rows, &w);
                for (got, (expected, magnitude)) in got.iter().zip(&expected) {
                    // A tie of the rounding may fall the other way where the scale's last bit differs.
                    let tolerance = if quantized { 3e-4 } else { 1e-6 } * magnitude;
                    let error = (f64::from(*got) - expected).abs();
                    assert!(error <= tolerance, "{ty:?} on {}: {got} for {expected}", backend.describe());
                }
            }
        }
    }
}

#[test]
fn extreme_quants_do_not_saturate() {
    for (ty, quant) in [(WeightType::Q8_0, 0x80u8), (WeightType::Q8_0, 0x7f), (WeightType::Q4_1, 0xff)] {
        let mut data = Vec::new();
        for _ in 0..16 * 64 / 32 {
            let start = data.len();
            data.resize(start + ty.block_bytes(), quant);
            data[start..start + 2].copy_from_slice(&half::f16::ONE.to_le_bytes());
            if ty == WeightType::Q4_1 {
                data[start + 2..start + 4].fill(0);
            }
        }
        let weights = dequantize(ty, &data);
        for sign in [1.0, -1.0] {
            let x = vec![127.0 * sign; 64];
            let (expected, _) = exact(&x, &weights, 64)[0];
            for backend in backends() {
                let w = backend.pack(&view(ty, 16, 64, &data)).unwrap();
                let got = linear(&backend, &x, 1, &w);
                assert!(got.iter().all(|&got| f64::from(got) == expected), "{ty:?} {got:?} {expected}");
            }
        }
    }
}

#[test]
fn rows_read_back_exactly_as_stored() {
    let mut random = Random(11);
    for ty in ALL_TYPES {
        let data = random.weight(ty, 35, 512);
        let weights = dequantize(ty, &data);
        let backend = CpuBackend::with(Isa::available()[0], 2).unwrap();
        let table = backend.pack(&view(ty, 35, 512, &data)).unwrap();
        let ids: Vec<u32> = (0..35).rev().collect();
        let mut out = backend.alloc(35, 512).unwrap();
        backend.embed_into(&table, &ids, &mut out);
        let expected: Vec<f32> =
            ids.iter().flat_map(|&id| weights[id as usize * 512..][..512].to_vec()).collect();
        assert_eq!(out.values(), expected, "{ty:?}");
    }
}

#[test]
fn stacked_weights_give_what_each_gives_alone() {
    let mut random = Random(13);
    let types = [WeightType::Q4_1, WeightType::Q4_1, WeightType::Q6_K, WeightType::F16];
    let data = types.map(|ty| random.weight(ty, 24, 256));
    let views: Vec<_> = types.iter().zip(&data).map(|(&ty, data)| view(ty, 24, 256, data)).collect();
    let x = random.floats(2 * 256);
    for backend in backends() {
        let stacked = linear(&backend, &x, 2, &backend.pack_stacked(&views).unwrap());
        for (i, weight) in views.iter().enumerate() {
            let alone = linear(&backend, &x, 2, &backend.pack(weight).unwrap());
            for row in 0..2 {
                assert_eq!(bits(&stacked[row * 96 + i * 24..][..24]), bits(&alone[row * 24..][..24]));
            }
        }
    }
}

#[test]
fn weights_of_a_wrong_shape_are_refused() {
    let backend = CpuBackend::with(Isa::available()[0], 1).unwrap();
    for (columns, bytes) in [(48, 2 * 34), (64, 3)] {
        let data = vec![0; bytes];
        let result = backend.pack(&view(WeightType::Q8_0, 1, columns, &data));
        assert!(matches!(result, Err(BackendError::Unsupported { .. })));
    }
    let (a, b) = (vec![0; 34], vec![0; 68]);
    let views = [view(WeightType::Q8_0, 1, 32, &a), view(WeightType::Q8_0, 1, 64, &b)];
    assert!(matches!(backend.pack_stacked(&views), Err(BackendError::Unsupported { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_row_has_the_same_bits_in_every_batch_and_on_any_number_of_threads(
        seed in 1u64..,
        rows in 1usize..40,
        features in 1usize..70,
        ty in proptest::sample::select(ALL_TYPES.to_vec()),
        threads in 1usize..5,
    ) {
        let mut random = Random(seed);
        let columns = 256;
        let data = random.weight(ty, features, columns);
        let x = random.floats(rows * columns);
        for isa in Isa::available() {
            let alone = CpuBackend::with(isa, 1).unwrap();
            let backend = CpuBackend::with(isa, threads).unwrap();
            let w = backend.pack(&view(ty, features, columns, &data)).unwrap();
            let together = linear(&backend, &x, rows, &w);
            for (x, out) in x.chunks(columns).zip(together.chunks(features)) {
                prop_assert_eq!(bits(out), bits(&linear(&alone, x, 1, &w)));
            }
        }
    }
}
