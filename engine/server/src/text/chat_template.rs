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

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;
    use serde_json::json;

    fn render(source: &str, messages: serde_json::Value) -> Result<String, TextError> {
        ChatTemplate::new(source, &testing::tokenizer())?.render(&messages, None, true, &Map::new())
    }

    const CHATML: &str = "{{ bos_token }}{% for m in messages %}
        {{- '<|' + m.role + '|>' + m['content'] + eos_token }}
    {%- endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";

    #[test]
    fn messages_become_a_prompt() {
        let messages = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]);
        assert_eq!(
            render(CHATML, messages).unwrap(),
            "<s><|user|>a<|end|><|assistant|>b<|end|><|assistant|>"
        );
    }

    #[test]
    fn text_parts_are_joined_and_other_parts_refused() {
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        let prompt = render(CHATML, json!([{"role": "user", "content": parts}])).unwrap();
        assert!(prompt.contains("<|user|>ab<|end|>"), "{prompt}");
        let image = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]);
        let error = render(CHATML, image).unwrap_err().to_string();
        assert!(error.contains("`image_url`"), "{error}");
    }

    #[test]
    fn tools_and_further_variables_reach_the_template_but_do_not_replace_messages() {
        let template =
            ChatTemplate::new("{{ tools | tojson }}{{ think }}{{ messages }}", &testing::tokenizer())
                .unwrap();
        let tools = json!([{"z": 1, "a": 2}]);
        let extra = json!({"think": false, "messages": "mine"});
        let prompt = template.render(&json!([]), Some(&tools), true, extra.as_object().unwrap()).unwrap();
        assert_eq!(prompt, "[{\"z\": 1, \"a\": 2}]False[]");
    }

    #[test]
    fn a_missing_template_says_what_to_do() {
        let error = ChatTemplate::missing().render(&json!([]), None, true, &Map::new()).unwrap_err();
        assert!(error.to_string().contains("/v1/completions"), "{error}");
    }

    #[test]
    fn a_broken_template_is_an_error_when_the_model_is_loaded() {
        let error = render("{% for %}", json!([])).unwrap_err();
        assert!(matches!(error, TextError::Template(_)), "{error}");
    }

    #[test]
    fn what_the_template_raises_reaches_the_client() {
        let error = render("{{ raise_exception('no system role') }}", json!([])).unwrap_err();
        assert_eq!(error.to_string(), "the chat template failed: no system role (line 1 of the template)");
        let error = render("{{ messages[0].content.foo() }}", json!([{"role": "user"}])).unwrap_err();
        assert!(error.to_string().contains("line 1"), "{error}");
    }
}
