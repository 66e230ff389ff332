//! Every weight type against the Python package `gguf`, bit for bit.

use std::path::Path;
use std::process::Command;

use regatta_runner::dequantize::dequantize;
use regatta_runner::weights::{WeightType, WeightView};
use safetensors::SafeTensors;

use crate::play::data;

/// Compares with a file that `tests/data/dequantize.py` wrote.
fn check(file: &Path) {
    let bytes = std::fs::read(file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    for ty in WeightType::ALL {
        let name = format!("{ty:?}");
        let data = tensors.tensor(&format!("{name}.data")).unwrap();
        let values = tensors.tensor(&format!("{name}.values")).unwrap();
        let &[rows, columns] = values.shape() else { panic!("values of {name} are no matrix") };
        let expected: Vec<f32> = values
            .data()
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
            .collect();
        let found = dequantize(&WeightView { name: &name, ty, rows, columns, data: data.data() });
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn every_weight_type_means_what_the_gguf_package_says() {
    check(&data("dequantize.safetensors"));
}

/// Fresh random tensors, where `REGATTA_PYTHON` names an interpreter that has the package.
#[test]
fn fresh_random_tensors_mean_what_the_gguf_package_says() {
    let Some(python) = std::env::var_os("REGATTA_PYTHON") else {
        println!("REGATTA_PYTHON is not set: only the committed tensors are compared");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tensors.safetensors");
    let seed = std::process::id().to_string();
    let status = Command::new(python).arg(data("dequantize.py")).arg(&seed).arg(&file).status().unwrap();
    assert!(status.success(), "dequantize.py failed with seed {seed}");
    check(&file);
}
