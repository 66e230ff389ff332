//! Fields that change nothing here: harmless ones, and those whose value asks for what happens anyway.

use serde_json::{Value, json};

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

/// # Errors
/// 400 with the field's name when leaving it out would change the answer.
pub(super) fn check(name: &str, raw: &str) -> Result<(), ApiError> {
    if HARMLESS.contains(&name) || raw == "null" {
        return Ok(());
    }
    let shown: String = name.chars().take(64).collect();
    let Some(allowed) = neutral(name) else {
        return Err(ApiError::invalid(shown.clone(), format!("`{shown}` is not supported; remove it")));
    };
    let value: Option<Value> = serde_json::from_str(raw).ok();
    if value.is_some_and(|value| allowed.iter().any(|neutral| same(neutral, &value))) {
        return Ok(());
    }
    let instead = allowed.first().map_or_else(String::new, |neutral| format!(" other than as {neutral}"));
    Err(ApiError::invalid(shown.clone(), format!("`{shown}` is not supported{instead}; remove it")))
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
            assert!(check(name, raw).is_ok(), "{name}: {raw}");
        }
    }

    #[test]
    fn what_would_change_the_answer_is_refused() {
        let cases = [
            ("best_of", "2"),
            ("response_format", r#"{"type": "json_object"}"#),
            ("tools", "[]"),
            ("reasoning_effort", r#""low""#),
            ("no_such_field", "1"),
        ];
        for (name, raw) in cases {
            assert!(check(name, raw).is_err(), "{name}: {raw}");
        }
    }
}
