//! Tokenizer and chat template.

use regatta_engine::text::{self, Detokenizer, DetokenizerOptions, ModelText};
use regatta_runner::formats::Checkpoint;

use crate::reference;

fn demo_model() -> ModelText {
    let checkpoint = Checkpoint::open(&reference::model_path()).unwrap();
    text::load(checkpoint.tokenizer()).unwrap()
}

#[test]
fn prompt_ids_equal_the_reference() {
    let ModelText { tokenizer, chat_template } = demo_model();
    for prompt in reference::prompts() {
        let rendered = prompt
            .messages
            .map(|messages| chat_template.render(&messages, None, true, &Default::default()).unwrap());
        assert_eq!(rendered, prompt.formatted, "{}", prompt.name);
        let text = rendered.or(prompt.text).unwrap();
        assert_eq!(tokenizer.encode(&text, true).unwrap(), prompt.prompt_ids, "{}", prompt.name);
        assert_eq!(tokenizer.decode(&prompt.prompt_ids, false), text, "{}", prompt.name);
    }
}

#[test]
fn answers_read_as_in_the_reference() {
    let ModelText { tokenizer, .. } = demo_model();
    for prompt in reference::prompts() {
        let mut detokenizer = Detokenizer::new(tokenizer.clone(), DetokenizerOptions::default());
        let mut text: String = prompt.output_ids.iter().map(|&id| detokenizer.push(id).text).collect();
        text.push_str(&detokenizer.finish());
        assert_eq!(text, prompt.output_text, "{}", prompt.name);
    }
}

#[test]
fn the_end_of_a_turn_ends_a_generation() {
    let ModelText { tokenizer, .. } = demo_model();
    let end = tokenizer.encode("<|im_end|>", false).unwrap();
    assert!(tokenizer.eos_token_ids().contains(&end[0]) && end.len() == 1);
    assert_eq!(tokenizer.vocab_size(), 49152);
}

#[test]
fn long_and_odd_texts_come_back_whole() {
    let ModelText { tokenizer, .. } = demo_model();
    let texts = [
        " ".repeat(100_000),
        "\n\t ".repeat(30_000),
        "a".repeat(100_000),
        "7".repeat(10_000),
        "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}".repeat(1000),
        "\0\u{1}\u{7f}\u{85}\u{2028}\u{feff}\u{fffd}\u{10ffff}".to_owned(),
        "e\u{301}\u{327} \u{5e9}\u{5dc} \u{915}\u{94d}\u{937} \u{1100}\u{1161}".to_owned(),
    ];
    for text in texts {
        let ids = tokenizer.encode(&text, false).unwrap();
        assert!(tokenizer.decode(&ids, false) == text, "{:.40}", text.escape_unicode());
    }
}
