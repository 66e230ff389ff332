//! Hugging Face folders that lie.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;
use rstest::rstest;
use tempfile::TempDir;

fn original(file: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiny-llama");
    std::fs::read(folder.join(file)).unwrap()
}

fn folder(config: &[u8], weights: &[u8]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    std::fs::write(folder.path().join("model.safetensors"), weights).unwrap();
    folder
}

/// A weights file with this header.
fn weights(header: &str) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 64]].concat()
}

#[rstest]
#[case::empty(Vec::new(), "model.safetensors")]
#[case::length(u64::MAX.to_le_bytes().to_vec(), "its header claims 18446744073709551615 bytes")]
#[case::cut(500u64.to_le_bytes().to_vec(), "is damaged or not what it says")]
#[case::text(weights("no json"), "is damaged or not what it says")]
#[case::beyond(
    weights(r#"{"a":{"dtype":"F32","shape":[1000000],"data_offsets":[0,4000000]}}"#),
    "is damaged or not what it says"
)]
#[case::overflow(
    weights(r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,64]}}"#),
    "is damaged or not what it says"
)]
#[case::backwards(
    weights(r#"{"a":{"dtype":"F32","shape":[16],"data_offsets":[64,0]}}"#),
    "is damaged or not what it says"
)]
#[case::integers(
    weights(r#"{"a":{"dtype":"I64","shape":[8],"data_offsets":[0,64]}}"#),
    "tensor `a` of type I64 is not supported; supported in safetensors: F32, F16, BF16"
)]
#[case::other(
    weights(r#"{"a":{"dtype":"F32","shape":[16],"data_offsets":[0,64]}}"#),
    "it lacks the tensor `model.embed_tokens.weight`"
)]
fn a_lie_is_refused_by_name(#[case] weights: Vec<u8>, #[case] reason: &str) {
    let folder = folder(&original("config.json"), &weights);
    let text = crate::open(folder.path(), &crate::backend()).expect_err("it cannot be used");
    assert!(text.contains(folder.path().to_str().unwrap()) && text.contains(reason), "{text}");
}

#[test]
fn a_configuration_of_any_size_is_refused_beyond_its_bound() {
    let config = [b"[".as_slice(), &b"0,".repeat(1 << 20), b"0]"].concat();
    let folder = folder(&config, &original("model.safetensors"));
    let text = crate::open(folder.path(), &crate::backend()).expect_err("it is too long");
    assert!(text.contains("it has more than 1048576 bytes"), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 50, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn no_change_of_bytes_does_more_than_refuse(
        changes in prop::collection::vec((any::<bool>(), any::<Index>(), any::<u8>()), 1..5),
        cut in prop::option::of(any::<Index>()),
    ) {
        let (mut config, mut weights) = (original("config.json"), original("model.safetensors"));
        let header_len = u64::from_le_bytes(*weights.first_chunk().unwrap()) as usize;
        for (in_config, at, byte) in changes {
            let (bytes, len) =
                if in_config { (&mut config, usize::MAX) } else { (&mut weights, 8 + header_len) };
            let len = len.min(bytes.len());
            bytes[at.index(len)] = byte;
        }
        if let Some(cut) = cut {
            weights.truncate(1 + cut.index(weights.len()));
        }
        let _ = crate::open(folder(&config, &weights).path(), &crate::backend());
    }
}
