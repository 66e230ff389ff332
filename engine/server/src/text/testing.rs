//! A small vocabulary for tests.

use std::sync::LazyLock;

use super::{GgufVocab, Tokenizer};

/// Byte-level BPE: ids 0 to 255 are the bytes in GPT-2's order of characters, then a few merges, then `<|end|>`
/// (control), `<think>` (part of the text) and `<s>` (control).
pub(super) fn vocab() -> GgufVocab {
    let printable = |byte: u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let others = (0x100..).take((0..=0xff).filter(|&byte| !printable(byte)).count());
    let mut tokens: Vec<String> = (0..=0xff)
        .filter(|&byte| printable(byte))
        .chain(others)
        .filter_map(char::from_u32)
        .map(String::from)
        .collect();
    // A word, a space with a letter, and the first three bytes of most emoji.
    let merges = ["h e", "l l", "he ll", "hell o", "Ġ a", "ð Ł", "ðŁ ĺ"].map(str::to_owned).to_vec();
    tokens.extend(merges.iter().map(|merge| merge.replace(' ', "")));
    let mut token_types = vec![1; tokens.len()];
    tokens.extend(["<|end|>", "<think>", "<s>"].map(str::to_owned));
    token_types.extend([3, 4, 3]);
    let id_of = |token: &str| tokens.iter().position(|other| other == token).map(|id| id as u32);
    GgufVocab {
        model: "gpt2".to_owned(),
        pre: Some("gpt-2".to_owned()),
        bos_token_id: id_of("<s>"),
        eos_token_id: id_of("<|end|>"),
        tokens,
        token_types,
        merges,
        ..GgufVocab::default()
    }
}

/// The tokenizer of [`vocab`].
pub(crate) fn tokenizer() -> Tokenizer {
    static TOKENIZER: LazyLock<Tokenizer> =
        LazyLock::new(|| Tokenizer::from_gguf(&vocab()).expect("the vocabulary is valid"));
    TOKENIZER.clone()
}
