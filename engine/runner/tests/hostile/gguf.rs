//! GGUF files that lie.

use proptest::prelude::*;
use proptest::sample::Index;
use regatta_runner::facts::ModelFacts;
use regatta_runner::formats::Checkpoint;
use rstest::rstest;

use crate::gguf_writer::{Gguf, Value};

fn refusal(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    let text = crate::open(&path, &crate::backend()).expect_err("it cannot be used");
    assert!(text.contains(path.to_str().unwrap()), "{text}");
    text
}

/// An array value: element type, claimed length, and what follows.
fn array(element: u32, len: u64, rest: &[u8]) -> Value {
    Value::Raw(9, [&element.to_le_bytes()[..], &len.to_le_bytes(), rest].concat())
}

#[test]
fn the_file_that_is_broken_below_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    for version in [2, 3] {
        std::fs::write(&path, Gguf { version, ..Gguf::tiny() }.bytes()).unwrap();
        crate::open(&path, &crate::backend()).unwrap();
    }
}

#[rstest]
#[case("it does not begin with `GGUF`", |gguf: &mut Gguf| gguf.magic = *b"GGML")]
#[case("GGUF version 1 is not supported", |gguf: &mut Gguf| gguf.version = 1)]
#[case("a big-endian GGUF file is not supported", |gguf: &mut Gguf| gguf.version = 3u32.swap_bytes())]
#[case("it claims 18446744073709551615 tensors, at most 65536", |gguf: &mut Gguf| gguf.num_tensors = Some(u64::MAX))]
#[case("it claims 4294967296 metadata entries, at most 65536", |gguf: &mut Gguf| gguf.num_entries = Some(1 << 32))]
#[case("is missing", |gguf: &mut Gguf| gguf.entries.retain(|(key, _)| key != "llama.block_count"))]
#[case("the architecture `mamba` is not supported; supported in GGUF: llama", |gguf: &mut Gguf| {
    gguf.entries[0].1 = Value::String("mamba");
})]
#[case("the metadata key `general.architecture` stands there twice", |gguf: &mut Gguf| {
    gguf.entries.push(("general.architecture".into(), Value::String("llama")));
})]
#[case("has the unknown value type 13", |gguf: &mut Gguf| gguf.entries[0].1 = Value::Raw(13, vec![0; 8]))]
#[case("claims 1099511627776 bytes, at most 16777216", |gguf: &mut Gguf| {
    gguf.entries[0].1 = Value::Raw(8, (1u64 << 40).to_le_bytes().to_vec());
})]
#[case("is not UTF-8", |gguf: &mut Gguf| gguf.entries[0].1 = Value::Raw(8, [&1u64.to_le_bytes()[..], &[0xff]].concat()))]
#[case("the array `general.architecture` claims 18446744073709551615 elements", |gguf: &mut Gguf| {
    gguf.entries[0].1 = array(4, u64::MAX, &[]);
})]
#[case("needs 134217728 bytes", |gguf: &mut Gguf| gguf.entries[0].1 = array(12, 1 << 24, &[]))]
#[case("are nested more than 4 deep", |gguf: &mut Gguf| {
    gguf.entries[0].1 = array(9, 1, &[&9u32.to_le_bytes()[..], &1u64.to_le_bytes()].concat().repeat(100));
})]
#[case("`general.alignment` is 33", |gguf: &mut Gguf| gguf.entries.push(("general.alignment".into(), Value::U32(33))))]
#[case("`general.alignment` is 0", |gguf: &mut Gguf| gguf.entries.push(("general.alignment".into(), Value::U32(0))))]
#[case("`llama.attention.sliding_window_pattern`", |gguf: &mut Gguf| {
    gguf.entries.push(("llama.attention.sliding_window_pattern".into(), Value::U32(2)));
})]
#[case("a `llama.attention.sliding_window` that is no integer", |gguf: &mut Gguf| {
    gguf.entries.push(("llama.attention.sliding_window".into(), Value::I32s(vec![8, 0])));
})]
#[case("a mixture of 8 experts", |gguf: &mut Gguf| gguf.entries.push(("llama.expert_count".into(), Value::U32(8))))]
#[case("rope scaling `yarn`", |gguf: &mut Gguf| {
    gguf.entries.push(("llama.rope.scaling.type".into(), Value::String("yarn")));
})]
#[case("the number of heads is 0", |gguf: &mut Gguf| {
    gguf.entries.retain(|(key, _)| key != "llama.attention.head_count");
    gguf.entries.push(("llama.attention.head_count".into(), Value::U32(0)));
})]
#[case("of type Q4_K is not supported; supported types: [F32", |gguf: &mut Gguf| gguf.tensors[0].ty = 12)]
#[case("of type with number 4000000000", |gguf: &mut Gguf| gguf.tensors[0].ty = 4_000_000_000)]
#[case("has 0 dimensions", |gguf: &mut Gguf| gguf.tensors[0].dimensions.clear())]
#[case("has 4000000 dimensions", |gguf: &mut Gguf| gguf.tensors[0].dimensions = vec![1; 4_000_000])]
#[case("impossible shape", |gguf: &mut Gguf| gguf.tensors[0].dimensions = vec![1 << 32, 1 << 32])]
#[case("impossible shape", |gguf: &mut Gguf| gguf.tensors[0].dimensions = vec![32, 0])]
#[case("is larger than any file", |gguf: &mut Gguf| gguf.tensors[0].dimensions = vec![1 << 62])]
#[case("the file is cut short", |gguf: &mut Gguf| gguf.tensors[0].dimensions = vec![32, 1 << 40])]
#[case("which is not whole Q8_0 blocks", |gguf: &mut Gguf| {
    gguf.tensors[0].dimensions = vec![31, 32];
    gguf.tensors[0].ty = 8;
})]
#[case("ends beyond any file", |gguf: &mut Gguf| gguf.tensors[0].offset = Some(u64::MAX - 31))]
#[case("not a multiple of 32", |gguf: &mut Gguf| gguf.tensors[0].offset = Some(4))]
#[case("overlap", |gguf: &mut Gguf| gguf.tensors[1].offset = Some(0))]
#[case("the tensor `token_embd.weight` stands there twice", |gguf: &mut Gguf| {
    gguf.tensors[1].name = "token_embd.weight".into();
})]
#[case("has shape [32, 3, 1], the model's sizes ask for", |gguf: &mut Gguf| {
    gguf.tensors[0].dimensions = vec![1, 3, 32];
})]
#[case("a tensor name at byte", |gguf: &mut Gguf| gguf.tensors[0].name = "x".repeat(257))]
#[case("tensor `blk.0.attn_q.bias`, one of 1 without a place in this architecture, is not supported", |gguf: &mut Gguf| {
    gguf.tensors.push(crate::gguf_writer::Tensor {
        name: "blk.0.attn_q.bias".into(),
        dimensions: vec![32],
        ty: 0,
        offset: None,
    });
})]
fn a_lie_is_refused_by_name(#[case] reason: &str, #[case] lie: fn(&mut Gguf)) {
    let mut gguf = Gguf::tiny();
    lie(&mut gguf);
    let refusal = refusal(&gguf.bytes());
    assert!(refusal.contains(reason), "{refusal}");
}

#[test]
fn a_window_is_that_of_all_layers_where_it_is_shorter_than_the_context() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    for (window, wanted) in [(0, None), (16, Some(vec![Some(16)])), (64, None), (4096, None)] {
        let mut gguf = Gguf::tiny();
        gguf.entries.push(("llama.attention.sliding_window".into(), Value::U32(window)));
        std::fs::write(&path, gguf.bytes()).unwrap();
        let facts = ModelFacts::of(&Checkpoint::open(&path).unwrap());
        assert_eq!(facts.config.windows, wanted.unwrap_or_default(), "{window}");
    }
}

#[test]
fn a_file_cut_anywhere_in_its_header_is_refused() {
    let header = Gguf::tiny().header();
    for len in 1..header.len() {
        refusal(&header[..len]);
    }
}

/// Numbers that break arithmetic.
fn hostile() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (0u32..64).prop_map(|shift| 1 << shift),
        (0u32..64).prop_map(|shift| (1u64 << shift).wrapping_sub(1)),
        Just(u64::MAX - 31),
    ]
}

proptest! {
    #[test]
    fn no_change_of_bytes_does_more_than_refuse(
        changes in prop::collection::vec((any::<Index>(), hostile(), 1usize..=8), 1..4),
        cut in prop::option::of(any::<Index>()),
    ) {
        let gguf = Gguf::tiny();
        let (mut bytes, header_len) = (gguf.bytes(), gguf.header().len());
        for (at, value, width) in changes {
            let at = at.index(header_len);
            bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        }
        if let Some(cut) = cut {
            bytes.truncate(1 + cut.index(bytes.len()));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        std::fs::write(&path, bytes).unwrap();
        let _ = crate::open(&path, &crate::backend());
    }
}
