//! The tokenizer in a GGUF file's metadata.

use std::collections::BTreeMap;

use regatta_runner::formats::gguf::Metadata;
use tokenizers::AddedToken;

use super::pieces::{PieceCoding, Pieces};
use super::tokenizer::Parts;
use super::{ChatTemplate, ModelText, TextError, Tokenizer, gguf_bpe, gguf_spm};

/// `tokenizer.ggml.token_type` of tokens that no text produces.
const UNKNOWN: i32 = 2;
/// Control tokens: special, not part of the text.
const CONTROL: i32 = 3;
/// Added tokens that are part of the text.
const USER_DEFINED: i32 = 4;

/// Control tokens that end a turn in published models, whether or not the file names them as such.
const END_OF_TURN: [&str; 7] = [
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
];

/// What a GGUF file says about its tokenizer: the values of its `tokenizer.*` keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GgufVocab {
    /// `tokenizer.ggml.model`: `gpt2` or `llama`.
    pub model: String,
    /// `tokenizer.ggml.pre`: how text is split before merging; `gpt2` only.
    pub pre: Option<String>,
    /// `tokenizer.ggml.tokens`, by id.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.token_type`, by id; empty when absent.
    pub token_types: Vec<i32>,
    /// `tokenizer.ggml.scores`, by id; `llama` only.
    pub scores: Vec<f32>,
    /// `tokenizer.ggml.merges`, most important first; `gpt2` only.
    pub merges: Vec<String>,
    /// `tokenizer.ggml.bos_token_id`.
    pub bos_token_id: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`.
    pub eos_token_id: Option<u32>,
    /// `tokenizer.ggml.eot_token_id`: end of turn.
    pub eot_token_id: Option<u32>,
    /// `tokenizer.ggml.unknown_token_id`.
    pub unknown_token_id: Option<u32>,
    /// `tokenizer.ggml.padding_token_id`.
    pub padding_token_id: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`.
    pub add_bos_token: Option<bool>,
    /// `tokenizer.ggml.add_eos_token`.
    pub add_eos_token: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`.
    pub add_space_prefix: Option<bool>,
    /// `tokenizer.chat_template`.
    pub chat_template: Option<String>,
}

/// Reads tokenizer and chat template of a GGUF file.
pub(super) fn load(metadata: &Metadata) -> Result<ModelText, TextError> {
    let vocab = GgufVocab::read(metadata)?;
    let tokenizer = Tokenizer::from_gguf(&vocab)?;
    let chat_template = match &vocab.chat_template {
        Some(source) => ChatTemplate::new(source, &tokenizer)?,
        None => ChatTemplate::missing(),
    };
    Ok(ModelText { tokenizer, chat_template })
}

impl GgufVocab {
    /// Takes the tokenizer's keys out of a file's metadata.
    pub fn read(metadata: &Metadata) -> Result<Self, TextError> {
        let model = metadata.get_str("tokenizer.ggml.model").ok_or_else(|| {
            TextError::invalid(
                "tokenizer.ggml.model",
                "the file has no tokenizer; convert the model again with its vocabulary",
            )
        })?;
        let owned = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect();
        let id = |name: &str| metadata.get_u32(&format!("tokenizer.ggml.{name}_token_id"));
        Ok(Self {
            model: model.to_owned(),
            pre: metadata.get_str("tokenizer.ggml.pre").map(str::to_owned),
            tokens: metadata.array_str("tokenizer.ggml.tokens").map(owned).unwrap_or_default(),
            token_types: metadata.array_i32("tokenizer.ggml.token_type").unwrap_or_default(),
            scores: metadata.array_f32("tokenizer.ggml.scores").unwrap_or_default(),
            merges: metadata.array_str("tokenizer.ggml.merges").map(owned).unwrap_or_default(),
            bos_token_id: id("bos"),
            eos_token_id: id("eos"),
            eot_token_id: id("eot"),
            unknown_token_id: id("unknown"),
            padding_token_id: id("padding"),
            add_bos_token: metadata.get_bool("tokenizer.ggml.add_bos_token"),
            add_eos_token: metadata.get_bool("tokenizer.ggml.add_eos_token"),
            add_space_prefix: metadata.get_bool("tokenizer.ggml.add_space_prefix"),
            chat_template: metadata.get_str("tokenizer.chat_template").map(str::to_owned),
        })
    }

    /// The text of `id`; where the key names an id outside the vocabulary, an error.
    fn token(&self, id: Option<u32>, key: &str) -> Result<Option<&str>, TextError> {
        let Some(id) = id else { return Ok(None) };
        match self.tokens.get(id as usize) {
            Some(token) => Ok(Some(token)),
            None => Err(TextError::invalid(
                format!("tokenizer.ggml.{key}"),
                format!("id {id} is outside the vocabulary of {} tokens", self.tokens.len()),
            )),
        }
    }

    /// `tokenizer.ggml.token_type` of `id`; 1 (normal) where the file gives none.
    fn token_type(&self, id: usize) -> i32 {
        self.token_types.get(id).copied().unwrap_or(1)
    }

    /// Whether `id` is no text but an order, and so left out of what people read.
    fn is_special(&self, id: usize) -> bool {
        matches!(self.token_type(id), CONTROL | UNKNOWN)
    }

    fn check(&self) -> Result<(), TextError> {
        let num_tokens = self.tokens.len();
        if num_tokens == 0 {
            return Err(TextError::invalid("tokenizer.ggml.tokens", "the vocabulary is empty"));
        }
        for (key, len) in [("token_type", self.token_types.len()), ("scores", self.scores.len())] {
            if len != 0 && len != num_tokens {
                return Err(TextError::invalid(
                    format!("tokenizer.ggml.{key}"),
                    format!("it has {len} entries for {num_tokens} tokens"),
                ));
            }
        }
        Ok(())
    }

    /// Ids that end a generation: what the file names, and the control tokens known to end a turn.
    fn eos_token_ids(&self) -> Vec<u32> {
        let named = [self.eos_token_id, self.eot_token_id].into_iter().flatten();
        let ends_turn =
            |&id: &usize| self.token_type(id) == CONTROL && END_OF_TURN.contains(&self.tokens[id].as_str());
        let mut ids: Vec<u32> =
            named.chain((0..self.tokens.len()).filter(ends_turn).map(|id| id as u32)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    fn named_tokens(&self) -> Result<BTreeMap<String, String>, TextError> {
        let named = [
            ("bos_token", self.bos_token_id),
            ("eos_token", self.eos_token_id),
            ("unk_token", self.unknown_token_id),
            ("pad_token", self.padding_token_id),
        ];
        let texts = named.into_iter().filter_map(|(name, id)| {
            let text = self.token(id, &format!("{name}_id")).transpose()?;
            Some(text.map(|text| (name.to_owned(), text.to_owned())))
        });
        texts.collect()
    }

    /// Tokens that are found in a text before anything else, by the encoder's own kinds.
    fn added_tokens(&self) -> Vec<AddedToken> {
        let added = self.tokens.iter().enumerate().filter_map(|(id, text)| {
            let added = self.is_special(id) || self.token_type(id) == USER_DEFINED;
            (added && !text.is_empty())
                .then(|| AddedToken::from(text.as_str(), self.is_special(id)).normalized(false))
        });
        added.collect()
    }
}

impl Tokenizer {
    /// Builds the tokenizer that a GGUF file describes.
    pub fn from_gguf(vocab: &GgufVocab) -> Result<Self, TextError> {
        vocab.check()?;
        let is_spm = vocab.model == "llama";
        let (mut encoder, coding) = match vocab.model.as_str() {
            "gpt2" => (gguf_bpe::encoder(vocab)?, PieceCoding::ByteLevel),
            "llama" => (gguf_spm::encoder(vocab)?, PieceCoding::SentencePiece),
            other => {
                return Err(TextError::Unsupported {
                    what: "tokenizer.ggml.model",
                    name: other.to_owned(),
                    supported: "gpt2, llama",
                });
            }
        };
        let invalid =
            |error: tokenizers::Error| TextError::invalid("tokenizer.ggml.tokens", error.to_string());
        encoder.add_tokens(vocab.added_tokens()).map_err(invalid)?;
        let mut pieces = Pieces::default();
        for (id, token) in vocab.tokens.iter().enumerate() {
            let added = vocab.is_special(id) || vocab.token_type(id) == USER_DEFINED;
            let bytes = if added { token.as_bytes().to_vec() } else { coding.decode(token) };
            pieces.push(&bytes, vocab.is_special(id));
        }
        let named_tokens = vocab.named_tokens()?;
        let add_bos = vocab.add_bos_token.unwrap_or(is_spm || vocab.pre.as_deref() == Some("llama-bpe"));
        Ok(Self::new(Parts {
            encoder,
            pieces,
            prefix: vocab.bos_token_id.filter(|_| add_bos),
            suffix: vocab.eos_token_id.filter(|_| vocab.add_eos_token == Some(true)),
            bos_token_id: vocab.bos_token_id,
            eos_token_ids: vocab.eos_token_ids(),
            named_tokens,
            adds_leading_space: is_spm && vocab.add_space_prefix.unwrap_or(true),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn text_becomes_merged_tokens_and_comes_back() {
        let tokenizer = testing::tokenizer();
        let ids = tokenizer.encode("hello a\u{1f642}", false).unwrap();
        assert_eq!(ids.iter().map(|&id| tokenizer.token_text(id)).collect::<Vec<_>>()[..2], ["hello", " a"]);
        assert_eq!(tokenizer.decode(&ids, true), "hello a\u{1f642}");
    }

    #[test]
    fn special_tokens_in_text_become_their_ids() {
        let vocab = testing::vocab();
        let ids = Tokenizer::from_gguf(&vocab).unwrap().encode("<s>a<|end|>", false).unwrap();
        assert_eq!((ids.first().copied(), ids.last().copied()), (vocab.bos_token_id, vocab.eos_token_id));
        assert_eq!(ids.len(), 3);
    }

    #[test]
    fn bos_and_eos_are_added_when_the_file_says_so_and_bos_only_once() {
        let vocab = GgufVocab { add_bos_token: Some(true), add_eos_token: Some(true), ..testing::vocab() };
        let tokenizer = Tokenizer::from_gguf(&vocab).unwrap();
        let (bos, eos) = (vocab.bos_token_id.unwrap(), vocab.eos_token_id.unwrap());
        let a = tokenizer.encode("a", false).unwrap()[0];
        assert_eq!(tokenizer.encode("a", true).unwrap(), [bos, a, eos]);
        assert_eq!(tokenizer.encode("<s>a", true).unwrap(), [bos, a, eos]);
        assert_eq!(testing::tokenizer().encode("a", true).unwrap(), [a]);
    }

    #[test]
    fn a_text_that_cannot_fit_is_refused_by_its_bytes() {
        let tokenizer = testing::tokenizer();
        assert!(tokenizer.check_length(&"x".repeat(70), 10).is_ok());
        let error = tokenizer.check_length(&"x".repeat(71), 10).unwrap_err();
        assert!(error.is_request_fault() && error.to_string().contains("71 bytes"), "{error}");
    }

    #[test]
    fn unknown_kinds_are_named() {
        let model = GgufVocab { model: "t5".to_owned(), ..testing::vocab() };
        let error = Tokenizer::from_gguf(&model).unwrap_err().to_string();
        assert!(error.contains("tokenizer.ggml.model `t5`"), "{error}");
        let pre = GgufVocab { pre: Some("tekken".to_owned()), ..testing::vocab() };
        let error = Tokenizer::from_gguf(&pre).unwrap_err().to_string();
        assert!(error.contains("tokenizer.ggml.pre `tekken`"), "{error}");
    }

    #[test]
    fn damaged_vocabularies_are_errors() {
        let good = testing::vocab;
        let bad = [
            GgufVocab { tokens: Vec::new(), ..good() },
            GgufVocab { token_types: vec![1], ..good() },
            GgufVocab { scores: vec![0.0], ..good() },
            GgufVocab { merges: vec!["h".to_owned()], ..good() },
            GgufVocab { merges: vec!["h not-a-token".to_owned()], ..good() },
            GgufVocab { eos_token_id: Some(1 << 20), ..good() },
            GgufVocab { model: "llama".to_owned(), ..good() },
        ];
        for vocab in bad {
            assert!(Tokenizer::from_gguf(&vocab).is_err(), "{vocab:?}");
        }
    }

    fn sentencepiece() -> GgufVocab {
        let words = ["<unk>", "<s>", "</s>", "\u{2581}", "a", "b", "ab", "\u{2581}a", "\u{2581}ab", "aba"];
        let tokens =
            words.map(str::to_owned).into_iter().chain((0..=0xff).map(|byte| format!("<0x{byte:02X}>")));
        let mut scores = vec![0.0; 10 + 256];
        scores[3..10].copy_from_slice(&[-100.0, -101.0, -102.0, -2.0, -3.0, -5.0, -1.0]);
        let mut token_types = vec![6; 10 + 256];
        token_types[..10].copy_from_slice(&[2, 3, 3, 1, 1, 1, 1, 1, 1, 1]);
        GgufVocab {
            model: "llama".to_owned(),
            tokens: tokens.collect(),
            scores,
            token_types,
            bos_token_id: Some(1),
            eos_token_id: Some(2),
            unknown_token_id: Some(0),
            ..GgufVocab::default()
        }
    }

    #[test]
    fn sentencepiece_joins_by_score_and_falls_back_to_bytes() {
        let tokenizer = Tokenizer::from_gguf(&sentencepiece()).unwrap();
        let texts = |text: &str| {
            let ids = tokenizer.encode(text, true).unwrap();
            ids.iter().map(|&id| tokenizer.token_text(id)).collect::<Vec<_>>()
        };
        assert_eq!(texts("aba"), ["<s>", " ", "aba"]);
        assert_eq!(texts("abb"), ["<s>", " ab", "b"]);
        assert_eq!(texts("\n"), ["<s>", " ", "\n"]);
        let ids = tokenizer.encode("ab \u{1f642}", true).unwrap();
        assert_eq!(tokenizer.decode(&ids, true), "ab \u{1f642}");
        assert_eq!(tokenizer.eos_token_ids(), [2]);
    }

    #[test]
    fn a_run_of_spaces_is_joined_from_the_left() {
        let mut vocab = sentencepiece();
        for (len, score) in [(2, -0.1), (3, -0.2), (4, -0.3), (7, -0.4)] {
            vocab.tokens.push("\u{2581}".repeat(len));
            vocab.scores.push(score);
            vocab.token_types.push(1);
        }
        let tokenizer = Tokenizer::from_gguf(&vocab).unwrap();
        let lengths = |text: &str| {
            let ids = tokenizer.encode(text, false).unwrap();
            ids.iter().map(|&id| tokenizer.token_text(id).len()).collect::<Vec<_>>()
        };
        // With the prefix 7 spaces: 2 2 2 1, then 2 2 3, then 4 3, then 7. 9 stop at 4 2 3.
        assert_eq!(lengths("      "), [7]);
        assert_eq!(lengths("        "), [4, 2, 3]);
    }

    #[test]
    fn sentencepiece_without_space_prefix_adds_none() {
        let vocab =
            GgufVocab { add_space_prefix: Some(false), add_bos_token: Some(false), ..sentencepiece() };
        let tokenizer = Tokenizer::from_gguf(&vocab).unwrap();
        assert_eq!(tokenizer.encode("ab", true).unwrap(), [6]);
        assert_eq!(tokenizer.decode(&[3, 6], true), " ab");
    }
}
