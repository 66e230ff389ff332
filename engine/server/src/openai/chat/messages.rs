//! `messages` of a chat: roles and text.

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::{
    http::ApiError,
    openai::bounded::{OneOrMany, UpTo},
};

const MAX_MESSAGES: usize = 4096;
const MAX_PARTS: usize = 4096;

/// A message as it was sent. Fields that belong to tools must be absent, as tools are not served.
#[derive(Deserialize)]
struct Message<'a> {
    role: String,
    #[serde(default)]
    content: Option<OneOrMany<TextOrPart, MAX_PARTS>>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default, borrow)]
    tool_calls: Option<&'a RawValue>,
    #[serde(default)]
    tool_call_id: Option<String>,
    #[serde(default, borrow)]
    function_call: Option<&'a RawValue>,
}

/// `content` itself, or one of its parts.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of content parts")]
enum TextOrPart {
    Text(String),
    Part {
        #[serde(rename = "type")]
        kind: String,
        #[serde(default)]
        text: Option<String>,
    },
}

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
    let refuse = |reason: &str| ApiError::invalid("messages", format!("messages[{place}]: {reason}"));
    let message: Message<'_> = serde_json::from_str(raw.get()).map_err(|error| refuse(&error.to_string()))?;
    if message.tool_calls.is_some_and(|calls| calls.get() != "[]")
        || message.tool_call_id.is_some()
        || message.function_call.is_some()
    {
        return Err(refuse("tool calls are not supported"));
    }
    let content = match message.content {
        None => String::new(),
        Some(OneOrMany::One(part)) => part.text().map_err(|reason| refuse(&reason))?,
        Some(OneOrMany::Many(UpTo(parts))) => {
            let texts: Result<Vec<String>, String> = parts.into_iter().map(TextOrPart::text).collect();
            texts.map_err(|reason| refuse(&reason))?.join("\n")
        }
    };
    let mut read = json!({"role": message.role, "content": content});
    if let Some(name) = message.name {
        read["name"] = name.into();
    }
    Ok(read)
}

impl TextOrPart {
    fn text(self) -> Result<String, String> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Part { kind, text: Some(text) } if kind == "text" => Ok(text),
            Self::Part { kind, .. } => {
                let kind: String = kind.chars().take(64).collect();
                Err(format!("content of type `{kind}` is not supported; send text"))
            }
        }
    }
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
    fn what_cannot_be_honoured_is_refused_by_place() {
        let cases = [
            ("[]", "at least one"),
            ("{}", "messages: "),
            (r#"[{"content": "a"}]"#, "messages[0]: missing field `role`"),
            (r#"[{"role": "user", "content": "a"}, {"role": "user", "content": 3}]"#, "messages[1]"),
            (r#"[{"role": "user", "content": [{"type": "image_url"}]}]"#, "`image_url` is not supported"),
            (r#"[{"role": "tool", "content": "a", "tool_call_id": "1"}]"#, "tool calls are not supported"),
        ];
        for (text, wanted) in cases {
            let message = read_text(text).unwrap_err();
            assert!(message.contains(wanted), "{text}: {message}");
        }
    }
}
