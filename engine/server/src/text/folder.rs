//! The tokenizer in a Hugging Face folder: `tokenizer.json` with what stands beside it.

use std::collections::BTreeMap;

use regatta_runner::formats::HfFolder;
use serde_json::Value;
use tokenizers::DecoderWrapper;

use super::pieces::{PieceCoding, Pieces};
use super::tokenizer::Parts;
use super::{ChatTemplate, ModelText, TextError, Tokenizer};

/// The names under which `tokenizer_config.json` gives special tokens.
const NAMED_TOKENS: [&str; 4] = ["bos_token", "eos_token", "unk_token", "pad_token"];
/// Largest gap between token ids that is taken for padding rather than a damaged file.
const MAX_TOKEN_ID: u32 = 1 << 24;

/// Reads tokenizer and chat template of a folder.
pub(super) fn load(folder: &HfFolder) -> Result<ModelText, TextError> {
    let tokenizer = Tokenizer::from_folder(folder)?;
    let chat_template = match template_source(folder)? {
        Some(source) => ChatTemplate::new(&source, &tokenizer)?,
        None => ChatTemplate::missing(),
    };
    Ok(ModelText { tokenizer, chat_template })
}

impl Tokenizer {
    /// Reads `tokenizer.json`, the special tokens of `tokenizer_config.json`, and the end-of-sequence ids of
    /// `generation_config.json` and `config.json`.
    pub fn from_folder(folder: &HfFolder) -> Result<Self, TextError> {
        const NAME: &str = "tokenizer.json";
        let missing = || invalid(folder, NAME, "it is missing, so text cannot be read; get the whole model");
        let json = read(folder, NAME)?.ok_or_else(missing)?;
        let encoder: tokenizers::Tokenizer =
            json.parse().map_err(|error: tokenizers::Error| invalid(folder, NAME, error.to_string()))?;
        let (coding, adds_leading_space) = coding(encoder.get_decoder())?;
        let named_tokens = named_tokens(&read_json(folder, "tokenizer_config.json")?);
        let id_of = |name: &str| encoder.token_to_id(named_tokens.get(name)?);
        Ok(Self::new(Parts {
            pieces: pieces(&encoder, coding).map_err(|reason| invalid(folder, NAME, reason))?,
            prefix: None,
            suffix: None,
            bos_token_id: id_of("bos_token"),
            eos_token_ids: eos_token_ids(folder, id_of("eos_token"))?,
            named_tokens,
            adds_leading_space,
            encoder,
        }))
    }
}

/// The template: a file of its own, or in `tokenizer_config.json` as text or as a list of which one is `default`.
fn template_source(folder: &HfFolder) -> Result<Option<String>, TextError> {
    if let Some(source) = read(folder, "chat_template.jinja")? {
        return Ok(Some(source));
    }
    let config = read_json(folder, "tokenizer_config.json")?;
    let template = match &config["chat_template"] {
        Value::Array(templates) => {
            let default = templates.iter().find(|template| template["name"] == "default");
            default.map_or(&Value::Null, |template| &template["template"])
        }
        template => template,
    };
    Ok(template.as_str().map(str::to_owned))
}

/// What the decoder says about how tokens are written, and whether it takes a leading space away.
fn coding(decoder: Option<&DecoderWrapper>) -> Result<(PieceCoding, bool), TextError> {
    let description = serde_json::to_value(decoder).unwrap_or(Value::Null);
    let steps = match &description["decoders"] {
        Value::Array(steps) => steps.as_slice(),
        _ => std::slice::from_ref(&description),
    };
    let has = |kind: &str| steps.iter().any(|step| step["type"] == kind);
    if has("ByteLevel") {
        return Ok((PieceCoding::ByteLevel, false));
    }
    let strips = has("Strip")
        || steps.iter().any(|step| step["type"] == "Metaspace" && step["prepend_scheme"] != "never");
    if has("ByteFallback") || has("Metaspace") {
        return Ok((PieceCoding::SentencePiece, strips));
    }
    Err(TextError::Unsupported {
        what: "tokenizer.json decoder",
        name: description["type"].as_str().unwrap_or("none").to_owned(),
        supported: "ByteLevel, ByteFallback, Metaspace",
    })
}

fn pieces(encoder: &tokenizers::Tokenizer, coding: PieceCoding) -> Result<Pieces, String> {
    let vocab = encoder.get_vocab(true);
    let last = vocab.values().copied().max().unwrap_or(0);
    if last > MAX_TOKEN_ID {
        return Err(format!("token id {last} is above {MAX_TOKEN_ID}"));
    }
    let added = encoder.get_added_tokens_decoder();
    let mut by_id: Vec<Option<&str>> = vec![None; last as usize + 1];
    for (token, &id) in &vocab {
        by_id[id as usize] = Some(token);
    }
    let mut pieces = Pieces::default();
    for (token, id) in by_id.into_iter().zip(0..) {
        match (added.get(&id), token) {
            (Some(added), _) => pieces.push(added.content.as_bytes(), added.special),
            (None, Some(token)) => pieces.push(&coding.decode(token), false),
            (None, None) => pieces.push(&[], false),
        }
    }
    Ok(pieces)
}

/// Special tokens by name; each is given as text or as an object with its text in `content`.
fn named_tokens(config: &Value) -> BTreeMap<String, String> {
    let named = NAMED_TOKENS.iter().filter_map(|&name| {
        let token = config[name].as_str().or_else(|| config[name]["content"].as_str())?;
        Some((name.to_owned(), token.to_owned()))
    });
    named.collect()
}

/// The ids that end a generation: those of `generation_config.json`, else of `config.json`, and the tokenizer's own.
fn eos_token_ids(folder: &HfFolder, own: Option<u32>) -> Result<Vec<u32>, TextError> {
    let mut ids = id_list(&read_json(folder, "generation_config.json")?["eos_token_id"]);
    if ids.is_empty() {
        ids = id_list(&read_json(folder, "config.json")?["eos_token_id"]);
    }
    ids.extend(own);
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

fn id_list(value: &Value) -> Vec<u32> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Value::Array(ids) => ids.iter().filter_map(id).collect(),
        one => id(one).into_iter().collect(),
    }
}

/// A JSON file, or null where there is none.
fn read_json(folder: &HfFolder, name: &str) -> Result<Value, TextError> {
    let Some(text) = read(folder, name)? else { return Ok(Value::Null) };
    serde_json::from_str(&text).map_err(|error| invalid(folder, name, error.to_string()))
}

/// The text of a file, or nothing where there is none.
fn read(folder: &HfFolder, name: &str) -> Result<Option<String>, TextError> {
    let text = folder.read(name)?.map(String::from_utf8).transpose();
    text.map_err(|_| invalid(folder, name, "it is not UTF-8"))
}

fn invalid(folder: &HfFolder, name: &str, reason: impl Into<String>) -> TextError {
    TextError::invalid(folder.path().join(name).display().to_string(), reason)
}
