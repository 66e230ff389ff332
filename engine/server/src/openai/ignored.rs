//! Fields that nobody has read: harmless ones, those whose value asks for what happens anyway, and those that are
//! refused, each in words that tell a feature that is missing from a name that is misspelt.

use serde_json::{Value, json};

use super::fields::MAX_FREE_FORM_BYTES;
use crate::http::ApiError;

/// Fields that carry information for others; any value.
const HARMLESS: &[&str] = &[
    "metadata",
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
];

/// Fields of OpenAI's and vLLM's APIs that have no value which asks for nothing, or belong to another endpoint.
const UNSUPPORTED: &[&str] = &[
    "audio",
    "cache_control",
    "chat_template",
    "documents",
    "echo",
    "guided_choice",
    "guided_decoding_backend",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "guided_whitespace_pattern",
    "image_url",
    "include_reasoning",
    "input",
    "kv_transfer_params",
    "logits_processors",
    "max_completion_tokens",
    "media_io_kwargs",
    "messages",
    "mm_processor_kwargs",
    "prediction",
    "prompt",
    "prompt_embeds",
    "reasoning",
    "reasoning_content",
    "reasoning_effort",
    "repetition_detection",
    "request_id",
    "thinking_token_budget",
    "tool_call_id",
    "top_logprobs",
    "truncate_prompt_tokens",
    "verbosity",
    "vllm_xargs",
    "web_search_options",
];

/// Longest part of a name that is shown and compared.
const MAX_SHOWN: usize = 64;

/// Fields that are not honoured, with the values that ask for nothing.
fn neutral(name: &str) -> Option<Vec<Value>> {
    Some(match name {
        "length_penalty" | "best_of" => vec![json!(1)],
        "add_generation_prompt" => vec![json!(true)],
        // No tokenizer that is served puts spaces there.
        "spaces_between_special_tokens" => vec![json!(true), json!(false)],
        "continue_final_message" | "use_beam_search" | "early_stopping" => vec![json!(false)],
        "response_format" => vec![json!({"type": "text"})],
        "tool_choice" | "function_call" => vec![json!("none")],
        "chat_template_kwargs" => vec![json!({})],
        "modalities" => vec![json!(["text"])],
        "suffix" => vec![json!("")],
        "tools" | "functions" | "structured_outputs" => vec![],
        _ => return None,
    })
}

/// Holds a field that is left over against what may be. `known` are the names that the endpoint reads.
///
/// # Errors
/// 400 with the field's name when leaving it out would change the answer.
pub(super) fn check(name: &str, raw: &str, known: &[&'static str]) -> Result<(), ApiError> {
    if HARMLESS.contains(&name) || raw == "null" {
        return Ok(());
    }
    let refuse = |message| Err(ApiError::invalid(shown(name), message));
    let Some(allowed) = neutral(name) else {
        if UNSUPPORTED.contains(&name) {
            return refuse(unsupported(name));
        }
        return refuse(unknown(name, known.iter().chain(HARMLESS)));
    };
    // No neutral value is that long.
    let value: Option<Value> =
        (raw.len() <= MAX_FREE_FORM_BYTES).then(|| serde_json::from_str(raw).ok()).flatten();
    if value.is_some_and(|value| allowed.iter().any(|neutral| same(neutral, &value))) {
        return Ok(());
    }
    if matches!(name, "length_penalty" | "early_stopping") {
        return refuse(format!(
            "`{name}` has a meaning with `use_beam_search` only; set that to true, or remove `{name}`"
        ));
    }
    let instead = allowed.first().map_or_else(String::new, |neutral| format!(" other than as {neutral}"));
    refuse(format!("`{name}` is not supported{instead}; remove it"))
}

/// The refusal of a field inside an object of a request that reads the fields `known`.
pub(super) fn unknown_within(name: &str, known: &[&'static str]) -> String {
    if UNSUPPORTED.contains(&name) || neutral(name).is_some() {
        return unsupported(name);
    }
    unknown(name, known.iter())
}

fn unsupported(name: &str) -> String {
    format!("`{}` is not supported; remove it", shown(name))
}

fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a &'static str>) -> String {
    let shown = shown(name);
    match nearest(&shown, known) {
        Some(meant) => format!("unknown field `{shown}`; did you mean `{meant}`?"),
        None => format!("unknown field `{shown}`; remove it"),
    }
}

/// The known name that is few slips of the hand away.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a &'static str>) -> Option<&'static str> {
    let max = (name.len() / 4).min(3);
    known
        .map(|known| (strsim::damerau_levenshtein(name, known), *known))
        .filter(|(slips, _)| *slips <= max)
        .min()
        .map(|(_, known)| known)
}

fn shown(name: &str) -> String {
    name.chars().take(MAX_SHOWN).collect()
}

/// Equality in which 0 and 0.0 are the same number.
fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["max_tokens", "temperature", "top_p", "n", "stop"];

    fn refusal(name: &str, raw: &str) -> String {
        let error = check(name, raw, KNOWN).expect_err(name);
        error.body()["error"]["message"].as_str().unwrap().to_owned()
    }

    #[test]
    fn what_is_too_long_is_refused_unread() {
        let neutral = format!("{{{}\"type\": \"text\"}}", " ".repeat(MAX_FREE_FORM_BYTES));
        assert!(refusal("response_format", &neutral).contains("not supported"));
    }

    #[test]
    fn what_asks_for_nothing_is_accepted() {
        let cases = [
            ("best_of", "1.0"),
            ("spaces_between_special_tokens", "false"),
            ("response_format", r#"{"type": "text"}"#),
            ("tools", "null"),
            ("metadata", r#"{"a": "b"}"#),
            ("anything", "null"),
        ];
        for (name, raw) in cases {
            assert!(check(name, raw, KNOWN).is_ok(), "{name}: {raw}");
        }
    }

    #[test]
    fn what_would_change_the_answer_is_refused_in_words_that_fit() {
        let cases = [
            ("best_of", "2", "`best_of` is not supported other than as 1; remove it"),
            (
                "response_format",
                r#"{"type": "json_object"}"#,
                "not supported other than as {\"type\":\"text\"}",
            ),
            ("tools", "[]", "`tools` is not supported; remove it"),
            ("reasoning_effort", r#""low""#, "`reasoning_effort` is not supported; remove it"),
            ("guided_json", "{}", "`guided_json` is not supported; remove it"),
            ("length_penalty", "2", "with `use_beam_search` only"),
            ("early_stopping", "true", "with `use_beam_search` only"),
            ("no_such_field", "1", "unknown field `no_such_field`; remove it"),
            ("x", "1", "unknown field `x`; remove it"),
        ];
        for (name, raw, wanted) in cases {
            let text = refusal(name, raw);
            assert!(text.contains(wanted), "{name}: {raw}: {text}");
        }
    }

    #[test]
    fn a_slip_of_the_hand_is_answered_with_what_was_meant() {
        let cases = [
            ("max_token", "max_tokens"),
            ("maxTokens", "max_tokens"),
            ("temprature", "temperature"),
            ("temperatrue", "temperature"),
            ("topp", "top_p"),
            ("stops", "stop"),
            ("metdata", "metadata"),
        ];
        for (name, meant) in cases {
            assert_eq!(refusal(name, "1"), format!("unknown field `{name}`; did you mean `{meant}`?"));
        }
        let long = "temperature".repeat(1000);
        assert!(refusal(&long, "1").len() < 100);
    }
}
