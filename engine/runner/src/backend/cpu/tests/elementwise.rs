use super::*;

#[test]
fn normalisation_follows_its_formula() {
    let mut random = Random(3);
    for width in [1, 5, 16, 61, 576] {
        let (x, weight) = (random.floats(3 * width), random.floats(width));
        let mut expected = Vec::new();
        for x in x.chunks(width) {
            let mean = x.iter().map(|x| x * x).sum::<f32>() / width as f32;
            expected.extend(x.iter().zip(&weight).map(|(x, w)| x / (mean + 1e-5).sqrt() * w));
        }
        for backend in backends() {
            let (x, weight) = (buffer(&backend, 3, &x), buffer(&backend, 1, &weight));
            let mut out = backend.alloc(3, width).unwrap();
            backend.rms_norm_into(&x, &weight, 1e-5, &mut out);
            assert_close(out.values(), &expected, 1e-5, "rms norm");
        }
    }
}

#[test]
fn gating_follows_its_formula_also_far_from_zero() {
    let mut random = Random(5);
    for width in [1, 7, 16, 45, 1536] {
        let x: Vec<f32> = random.floats(2 * 2 * width).iter().map(|x| x * 120.0).collect();
        let mut expected = Vec::new();
        for row in x.chunks(2 * width) {
            let (gate, up) = row.split_at(width);
            expected.extend(
                gate.iter().zip(up).map(|(&g, &u)| (f64::from(g) / (1.0 + f64::from(-g).exp())) as f32 * u),
            );
        }
        for backend in backends() {
            let gate_up = buffer(&backend, 2, &x);
            let mut out = backend.alloc(2, width).unwrap();
            backend.silu_mul_into(&gate_up, &mut out);
            for (got, expected) in out.values().iter().zip(&expected) {
                assert!((got - expected).abs() <= 1e-6 * expected.abs().max(1e-3), "{got} for {expected}");
            }
        }
    }
}

#[test]
fn sums_are_by_element_and_rows_are_gathered_by_index() {
    let backend = CpuBackend::with(Isa::available()[0], 2).unwrap();
    let mut x = buffer(&backend, 3, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let y = buffer(&backend, 3, &[10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
    backend.add_assign(&mut x, &y);
    let mut out = backend.alloc(4, 2).unwrap();
    backend.set_rows(&mut out, 2);
    backend.gather_rows_into(&x, &[2, 0], &mut out);
    assert_eq!(
        (&*backend.read_row(&out, 0), &*backend.read_row(&out, 1)),
        (&[55.0, 66.0][..], &[11.0, 22.0][..])
    );
}
