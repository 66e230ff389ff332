//! A small byte-level vocabulary: the 256 bytes, a few merges, and an end of sequence.

use regatta_engine::text::{ChatTemplate, GgufVocab, ModelText, Tokenizer};

/// Id of the end of sequence.
pub(crate) const EOS: u32 = 264;
/// Number of token ids.
pub(crate) const VOCAB_SIZE: usize = 265;

/// Renders a chat to its contents alone, so that an echoing model repeats them.
const TEMPLATE: &str = "{% for message in messages %}{{ message.content }}{% endfor %}";

pub(crate) fn model_text() -> ModelText {
    let tokenizer = Tokenizer::from_gguf(&vocab()).expect("the vocabulary is valid");
    let chat_template = ChatTemplate::new(TEMPLATE, &tokenizer).expect("the template is valid");
    ModelText { tokenizer, chat_template }
}

fn vocab() -> GgufVocab {
    let printable = |byte: u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let others = (0x100..).take((0..=0xff).filter(|&byte| !printable(byte)).count());
    let bytes = (0..=0xff).filter(|&byte| printable(byte)).chain(others);
    let mut tokens: Vec<String> = bytes.filter_map(char::from_u32).map(String::from).collect();
    let merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or"].map(str::to_owned).to_vec();
    tokens.extend(merges.iter().map(|merge| merge.replace(' ', "")));
    tokens.push("<pad>".to_owned());
    tokens.push("<|end|>".to_owned());
    let mut token_types = vec![1; tokens.len()];
    token_types[tokens.len() - 2..].fill(3);
    assert_eq!(tokens.len(), VOCAB_SIZE);
    GgufVocab {
        model: "gpt2".to_owned(),
        pre: Some("gpt-2".to_owned()),
        eos_token_id: Some(EOS),
        tokens,
        token_types,
        merges,
        ..GgufVocab::default()
    }
}
