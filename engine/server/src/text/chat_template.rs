//! A model's chat template: messages to a prompt.

use std::fmt;
use std::sync::Arc;

use minijinja::Environment;
use minijinja::value::{Serde, Value};
use serde_json::Map;

use super::{TextError, Tokenizer, template_env};

const NAME: &str = "chat_template";

/// A compiled chat template, or none. Clones share it.
#[derive(Clone)]
pub struct ChatTemplate {
    environment: Option<Arc<Environment<'static>>>,
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("present", &self.environment.is_some()).finish()
    }
}

impl ChatTemplate {
    /// Compiles a Jinja template as published with models. `tokenizer` gives it `bos_token` and its like.
    pub fn new(source: &str, tokenizer: &Tokenizer) -> Result<Self, TextError> {
        let mut environment = template_env::environment();
        for (name, token) in tokenizer.named_tokens() {
            environment.add_global(name.clone(), Value::from(token.as_str()));
        }
        let source = template_env::without_generation_blocks(source);
        environment.add_template_owned(NAME, source).map_err(|error| template_error(&error))?;
        Ok(Self { environment: Some(Arc::new(environment)) })
    }

    /// The absence of a template: rendering fails and says what to do.
    pub fn missing() -> Self {
        Self { environment: None }
    }

    /// Renders OpenAI-style `messages` (an array) and `tools` (an array) to a prompt. `extra` are further variables of
    /// the template (`chat_template_kwargs`); they do not replace the others.
    ///
    /// A message's `content` given as a list of text parts is joined to one string first.
    pub fn render(
        &self,
        messages: &serde_json::Value,
        tools: Option<&serde_json::Value>,
        add_generation_prompt: bool,
        extra: &Map<String, serde_json::Value>,
    ) -> Result<String, TextError> {
        let environment = self.environment.as_ref().ok_or(TextError::NoChatTemplate)?;
        let mut context = extra.clone();
        context.insert("messages".to_owned(), flattened(messages)?);
        context.insert("add_generation_prompt".to_owned(), add_generation_prompt.into());
        if let Some(tools) = tools {
            context.insert("tools".to_owned(), tools.clone());
        }
        let template = environment.get_template(NAME).map_err(|error| template_error(&error))?;
        template.render(Serde(context)).map_err(|error| template_error(&error))
    }
}

/// `messages` with every list of text parts joined; another kind of part is refused by name.
fn flattened(messages: &serde_json::Value) -> Result<serde_json::Value, TextError> {
    let mut messages = messages.clone();
    for message in messages.as_array_mut().into_iter().flatten() {
        let Some(content) = message.get_mut("content") else { continue };
        if let Some(parts) = content.as_array() {
            let texts: Result<String, TextError> = parts.iter().map(text_of_part).collect();
            *content = texts?.into();
        }
    }
    Ok(messages)
}

fn text_of_part(part: &serde_json::Value) -> Result<&str, TextError> {
    let kind = part.get("type").and_then(|kind| kind.as_str()).unwrap_or("text");
    match part.get("text").and_then(|text| text.as_str()) {
        Some(text) if kind == "text" => Ok(text),
        _ => Err(TextError::Template(format!(
            "content parts of type `{kind}` are not supported; send text parts"
        ))),
    }
}

fn template_error(error: &minijinja::Error) -> TextError {
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    let line = error.line().map_or_else(String::new, |line| format!(" (line {line} of the template)"));
    TextError::Template(format!("{detail}{line}"))
}
