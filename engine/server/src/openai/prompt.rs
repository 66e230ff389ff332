//! `prompt` of a completion: text or token ids, one or several.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::value::RawValue;

use super::bounded::UpTo;
use crate::{http::ApiError, model::ServedModel};

/// Most prompts of one request.
const MAX_PROMPTS: usize = 128;

/// A prompt as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    Text(String),
    Ids(Vec<u32>),
}

/// All prompts of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prompts(pub(super) Vec<Prompt>);

/// A prompt ready for the engine.
#[derive(Clone, Debug)]
pub(super) struct PreparedPrompt {
    /// At least one, all in the vocabulary.
    pub(super) token_ids: Arc<[u32]>,
    /// Its text, where the answer repeats it.
    pub(super) echo: String,
}

impl<'de> Deserialize<'de> for Prompts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        // The kind is seen from the first characters; trying one after the other would buffer the whole value.
        let inner = raw.strip_prefix('[').map(str::trim_start);
        let prompts = match inner.map(|inner| inner.as_bytes().first()) {
            None => serde_json::from_str(raw).map(|text| vec![Prompt::Text(text)]),
            Some(Some(b'"')) => serde_json::from_str::<UpTo<String, MAX_PROMPTS>>(raw)
                .map(|UpTo(texts)| texts.into_iter().map(Prompt::Text).collect()),
            Some(Some(b'[')) => serde_json::from_str::<UpTo<Vec<u32>, MAX_PROMPTS>>(raw)
                .map(|UpTo(lists)| lists.into_iter().map(Prompt::Ids).collect()),
            Some(_) => serde_json::from_str(raw).map(|ids| vec![Prompt::Ids(ids)]),
        };
        prompts.map(Self).map_err(D::Error::custom)
    }
}

impl Prompt {
    /// Tokenises and checks it.
    ///
    /// # Errors
    /// 400 when it is empty, too long, or holds ids that the model does not have.
    pub(super) fn prepare(
        self,
        model: &ServedModel,
        add_special_tokens: bool,
        skip_special_tokens: bool,
    ) -> Result<PreparedPrompt, ApiError> {
        let tokenizer = &model.text.tokenizer;
        let prompt = match self {
            Self::Text(text) => {
                let token_ids = model.tokenise(&text, add_special_tokens)?;
                PreparedPrompt { token_ids: token_ids.into(), echo: text }
            }
            Self::Ids(ids) => {
                if let Some(id) = ids.iter().find(|&&id| id as usize >= model.vocab_size) {
                    return Err(ApiError::invalid("prompt", format!("Token id {id} is out of vocabulary.")));
                }
                model.check_prompt_len(ids.len(), None)?;
                PreparedPrompt { echo: tokenizer.decode(&ids, skip_special_tokens), token_ids: ids.into() }
            }
        };
        if prompt.token_ids.is_empty() {
            return Err(empty());
        }
        Ok(prompt)
    }
}

/// The refusal of a prompt without content.
pub(super) fn empty() -> ApiError {
    ApiError::invalid("prompt", "Either prompt or prompt_embeds must be provided and non-empty.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(raw: &str) -> Option<Vec<Prompt>> {
        serde_json::from_str::<Prompts>(raw).ok().map(|prompts| prompts.0)
    }

    #[test]
    fn every_form_of_a_prompt_is_read() {
        let text = |text: &str| Prompt::Text(text.to_owned());
        assert_eq!(read(r#""a""#), Some(vec![text("a")]));
        assert_eq!(read(r#"[ "a", "b"]"#), Some(vec![text("a"), text("b")]));
        assert_eq!(read("[ 1, 2]"), Some(vec![Prompt::Ids(vec![1, 2])]));
        assert_eq!(read("[\n[1], [2, 3]]"), Some(vec![Prompt::Ids(vec![1]), Prompt::Ids(vec![2, 3])]));
        assert_eq!(read("[]"), Some(vec![Prompt::Ids(vec![])]));
    }

    #[test]
    fn what_is_no_prompt_is_refused() {
        for raw in
            ["1", "{}", "[-1]", "[1.5]", "[4294967296]", r#"["a", 1]"#, r#"[[1], "a"]"#, "[[[1]]]", "true"]
        {
            assert_eq!(read(raw), None, "{raw}");
        }
        assert_eq!(read(&format!("[{}]", vec![r#""a""#; MAX_PROMPTS + 1].join(","))), None);
    }
}
