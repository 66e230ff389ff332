//! `messages` of a chat: roles and text.

use serde_json::{Value, json, value::RawValue};

use crate::{
    http::ApiError,
    openai::{
        bounded::{OneOrMany, UpTo},
        fields::Fields,
    },
};

const MAX_MESSAGES: usize = 4096;
const MAX_PARTS: usize = 4096;

/// Reads the messages into what a chat template takes: objects with `role`, `content` and perhaps `name`.
///
/// # Errors
/// 400 that says which message is wrong.
pub(super) fn read(raw: &RawValue) -> Result<Value, ApiError> {
    let UpTo::<&RawValue, MAX_MESSAGES>(raw) = serde_json::from_str(raw.get())
        .map_err(|error| ApiError::invalid("messages", format!("messages: {error}")))?;
    if raw.is_empty() {
        return Err(ApiError::invalid("messages", "messages: at least one message is needed"));
    }
    raw.into_iter()
        .enumerate()
        .map(|(place, raw)| message(place, raw))
        .collect::<Result<_, _>>()
        .map(Value::Array)
}

fn message(place: usize, raw: &RawValue) -> Result<Value, ApiError> {
    let refuse = |reason: String| ApiError::invalid("messages", format!("messages[{place}]: {reason}"));
    read_message(raw).map_err(refuse)
}

/// Fields that belong to tools must be absent or empty, as tools are not served.
fn read_message(raw: &RawValue) -> Result<Value, String> {
    let mut fields = Fields::within(raw)?;
    let role: String = fields.read("role")?.ok_or("role: this field is needed")?;
    let content = match fields.read::<OneOrMany<&RawValue, MAX_PARTS>>("content")? {
        None => String::new(),
        Some(OneOrMany::One(part)) => text_of(part)?,
        Some(OneOrMany::Many(UpTo(parts))) => {
            parts.into_iter().map(text_of).collect::<Result<Vec<_>, _>>()?.join("\n")
        }
    };
    let name: Option<String> = fields.read("name")?;
    // A client that sends an answer back sends its empty lists, too.
    for list in ["tool_calls", "annotations"] {
        if fields.read::<&RawValue>(list)?.is_some_and(|items| !is_empty_list(items)) {
            return Err(format!("`{list}` is not supported; remove it"));
        }
    }
    fields.end()?;
    let mut read = json!({"role": role, "content": content});
    if let Some(name) = name {
        read["name"] = name.into();
    }
    Ok(read)
}

fn is_empty_list(raw: &RawValue) -> bool {
    serde_json::from_str::<UpTo<&RawValue, 0>>(raw.get()).is_ok()
}

/// Text, or a part that is text.
fn text_of(raw: &RawValue) -> Result<String, String> {
    if !raw.get().starts_with('{') {
        return serde_json::from_str(raw.get())
            .map_err(|_| "content: expected a string or a list of content parts".to_owned());
    }
    let mut part = Fields::within(raw)?;
    let kind: String = part.read("type")?.ok_or("content: a part needs a type")?;
    if kind != "text" {
        let kind: String = kind.chars().take(64).collect();
        return Err(format!("content of type `{kind}` is not supported; send text"));
    }
    let text = part.read("text")?.ok_or("content: a part of type `text` needs a text")?;
    part.end()?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Value, String> {
        let raw: &RawValue = serde_json::from_str(text).unwrap();
        read(raw).map_err(|error| error.body()["error"]["message"].as_str().unwrap().to_owned())
    }

    #[test]
    fn text_and_parts_of_text_become_one_string() {
        let read = read_text(
            r#"[{"role": "system", "content": "be brief"}, {"role": "user", "name": "u",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]"#,
        );
        let wanted = json!([{"role": "system", "content": "be brief"}, {"role": "user", "content": "a\nb", "name": "u"}]);
        assert_eq!(read.unwrap(), wanted);
    }

    #[test]
    fn an_answer_that_is_sent_back_is_taken() {
        let read = read_text(
            r#"[{"role": "assistant", "content": "a", "refusal": null, "annotations": [], "audio": null,
                "function_call": null, "tool_calls": [ ]}]"#,
        );
        assert_eq!(read.unwrap(), json!([{"role": "assistant", "content": "a"}]));
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_by_place() {
        let cases = [
            ("[]", "at least one"),
            ("{}", "messages: "),
            (r#"[{"content": "a"}]"#, "messages[0]: role: this field is needed"),
            (r#"["a"]"#, "messages[0]: invalid type"),
            (
                r#"[{"role": "user", "content": "a", "cache": 1}]"#,
                "messages[0]: unknown field `cache`; remove it",
            ),
            (r#"[{"role": "user", "content": "a", "content": "b"}]"#, "`content` stands in it twice"),
            (
                r#"[{"role": "user", "content": [{"type": "text", "text": "a", "x": 1}]}]"#,
                "unknown field `x`",
            ),
            (r#"[{"role": "user", "contnet": "a"}]"#, "unknown field `contnet`; did you mean `content`?"),
            (r#"[{"role": "user", "content": [{"type": "text"}]}]"#, "needs a text"),
            (r#"[{"role": "user", "content": "a"}, {"role": "user", "content": 3}]"#, "messages[1]"),
            (r#"[{"role": "user", "content": [{"type": "image_url"}]}]"#, "`image_url` is not supported"),
            (r#"[{"role": "tool", "content": "a", "tool_call_id": "1"}]"#, "`tool_call_id` is not supported"),
            (r#"[{"role": "assistant", "tool_calls": [{}]}]"#, "`tool_calls` is not supported"),
        ];
        for (text, wanted) in cases {
            let message = read_text(text).unwrap_err();
            assert!(message.contains(wanted), "{text}: {message}");
        }
    }
}
