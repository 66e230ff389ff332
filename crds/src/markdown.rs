//! The reference page of `LLMService`, written from the schema.

use std::fmt::Write;

use serde_json::Value;

use crate::definition;

const HEAD: &str = "\
# LLMService

`apiVersion: regatta.dev/v1alpha1`, `kind: LLMService`, short name `llm`. This page is generated from the schema that the
API server uses (`regatta crd --markdown`); `kubectl explain llm.spec` shows the same text.

An optional field that is absent is not the same as one that is zero or empty. The API server refuses unknown values with
the messages listed under *Rules*; what needs a look at the cluster is reported in the condition `SpecValid`.
";

/// The page as Markdown.
///
/// # Panics
/// As [`definition`].
pub fn markdown() -> String {
    let crd = serde_json::to_value(definition()).expect("a definition is JSON");
    let root = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut page = HEAD.to_owned();
    for (title, part) in [("Spec", "spec"), ("Status", "status")] {
        let _ = write!(page, "\n## {title}\n\n| field | type | meaning |\n| --- | --- | --- |\n");
        fields(&root["properties"][part], part, &mut page);
    }
    page.push_str("\n## Rules\n\n");
    let mut rules = Vec::new();
    messages(root, &mut rules);
    for message in rules {
        let _ = writeln!(page, "- {message}");
    }
    page
}

fn fields(schema: &Value, path: &str, page: &mut String) {
    let required: Vec<&Value> = schema["required"].as_array().into_iter().flatten().collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let list = field["type"] == "array";
        let path = format!("{path}.{name}{}", if list { "[]" } else { "" });
        let needed = if required.iter().any(|r| *r == name) { " **Required.**" } else { "" };
        let text = field["description"].as_str().unwrap_or_default().replace('|', "\\|");
        let _ = writeln!(page, "| `{path}` | {} | {text}{needed} |", type_name(field));
        fields(if list { &field["items"] } else { field }, &path, page);
    }
}

fn type_name(field: &Value) -> String {
    if field["x-kubernetes-int-or-string"] == true {
        return "quantity".into();
    }
    match (field["type"].as_str(), field["enum"].as_array()) {
        (_, Some(choices)) => choices.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
        (Some("array"), _) => format!("list of {}", type_name(&field["items"])),
        (Some("object"), _) if field.get("additionalProperties").is_some() => "map of strings".into(),
        (kind, _) => kind.unwrap_or("any").into(),
    }
}

fn messages(schema: &Value, found: &mut Vec<String>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        found.extend(rule["message"].as_str().map(str::to_owned));
    }
    for child in schema["properties"].as_object().into_iter().flatten().map(|(_, child)| child) {
        messages(child, found);
    }
    if schema.get("items").is_some() {
        messages(&schema["items"], found);
    }
}
