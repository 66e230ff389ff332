//! The schema of the CRD, applied to a manifest without an API server.

use serde_json::{Map, Value};

use crate::definition;

/// Fields beside `spec`.
const TOP_LEVEL: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];
/// How much of a misspelt name must be right for a guess what was meant.
const SIMILAR: f64 = 0.8;

/// Everything in `manifest` beside its metadata that the schema of the CRD refuses, as `path: problem`, and NUL
/// characters, which no argument or variable of a process can hold. A list or map beyond its bound is told of once, and
/// its entries not looked at. CEL rules are not part of this: with the feature `cel`, `LLMService::validate_cel`
/// evaluates them.
///
/// # Panics
/// As [`definition`].
pub fn schema_violations(manifest: &Value) -> Vec<String> {
    let crd = serde_json::to_value(definition()).expect("a definition is JSON");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut found = Vec::new();
    for name in manifest.as_object().into_iter().flatten().map(|(name, _)| name) {
        if !TOP_LEVEL.contains(&name.as_str()) {
            found.push(unknown(name, name, TOP_LEVEL));
        }
    }
    match manifest.get("spec") {
        Some(spec) => check(schema, spec, "spec", &mut found),
        None => found.push("spec: is required".to_owned()),
    }
    found
}

fn check(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    if !has_type(schema, value) {
        found.push(format!("{path}: must be {}", wanted(schema)));
        return;
    }
    match value {
        Value::Object(fields) => object(schema, fields, path, found),
        Value::Array(items) => array(schema, items, path, found),
        Value::String(text) => string(schema, text, path, found),
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            if let Some(min) = schema["minimum"].as_f64().filter(|&min| number < min) {
                found.push(format!("{path}: must be at least {min}"));
            }
            if let Some(max) = schema["maximum"].as_f64().filter(|&max| number > max) {
                found.push(format!("{path}: must be at most {max}"));
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

fn has_type(schema: &Value, value: &Value) -> bool {
    if schema["x-kubernetes-int-or-string"] == true {
        return value.is_string() || value.is_i64();
    }
    match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64(),
        Some("boolean") => value.is_boolean(),
        _ => true,
    }
}

fn wanted(schema: &Value) -> String {
    match schema["type"].as_str() {
        Some(kind @ ("object" | "array" | "integer")) => format!("an {kind}"),
        Some(kind) => format!("a {kind}; put quotes around a value that YAML reads otherwise"),
        None => "a quantity: a whole number, or a string such as 500m or 8Gi".to_owned(),
    }
}

fn object(schema: &Value, fields: &Map<String, Value>, path: &str, found: &mut Vec<String>) {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    if schema["maxProperties"].as_u64().is_some_and(|max| fields.len() as u64 > max) {
        found.push(format!("{path}: may hold at most {} entries", schema["maxProperties"]));
        return;
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            found.push(format!("{path}.{name}: is required"));
        }
    }
    for (name, value) in fields {
        let path = format!("{path}.{name}");
        match schema["properties"].get(name).or_else(|| schema.get("additionalProperties")) {
            Some(schema) => check(schema, value, &path, found),
            None => {
                let known = schema["properties"].as_object().into_iter().flatten();
                found.push(unknown(&path, name, known.map(|(known, _)| known.as_str())));
            }
        }
    }
}

fn unknown<'a>(path: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let likeness = |known: &str| strsim::jaro_winkler(&name.to_lowercase(), &known.to_lowercase());
    let likely = known.into_iter().map(|known| (likeness(known), known)).filter(|(is, _)| *is >= SIMILAR);
    match likely.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((_, meant)) => format!("{path}: is no known field; did you mean {meant}?"),
        None => format!("{path}: is no known field"),
    }
}

fn array(schema: &Value, items: &[Value], path: &str, found: &mut Vec<String>) {
    let count = items.len() as u64;
    if schema["minItems"].as_u64().is_some_and(|min| count < min) {
        found.push(format!("{path}: must hold at least {}", schema["minItems"]));
    }
    if schema["maxItems"].as_u64().is_some_and(|max| count > max) {
        found.push(format!("{path}: may hold at most {}", schema["maxItems"]));
        return;
    }
    for (i, item) in items.iter().enumerate() {
        check(&schema["items"], item, &format!("{path}[{i}]"), found);
        if let Some(own) = key(schema, item)
            && items[..i].iter().any(|earlier| key(schema, earlier) == Some(own))
        {
            found.push(format!("{path}[{i}]: stands in the list twice"));
        }
    }
}

/// What only one item of a list may have.
fn key<'a>(schema: &Value, item: &'a Value) -> Option<&'a Value> {
    match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => Some(item),
        Some("map") => item.get(schema["x-kubernetes-list-map-keys"][0].as_str()?),
        _ => None,
    }
}

fn string(schema: &Value, text: &str, path: &str, found: &mut Vec<String>) {
    let length = text.chars().count() as u64;
    if schema["minLength"].as_u64().is_some_and(|min| length < min) {
        found.push(format!("{path}: must not be empty"));
    }
    if schema["maxLength"].as_u64().is_some_and(|max| length > max) {
        found.push(format!("{path}: may be at most {} characters long", schema["maxLength"]));
    }
    if text.contains('\0') {
        found.push(format!("{path}: must not hold a NUL character"));
    }
    if let Some(choices) = schema["enum"].as_array()
        && !choices.iter().any(|choice| choice == text)
    {
        let names: Vec<&str> = choices.iter().filter_map(Value::as_str).collect();
        found.push(format!("{path}: must be one of {}", names.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_full_manifest_has_no_violation() {
        let manifest = json!({"spec": {
            "model": {"uri": "pvc://c/m.gguf", "servedNames": ["a", "b"]},
            "replicas": 0,
            "runPolicy": "Run",
            "resources": {"cpu": 2, "memory": "8Gi"},
            "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}]},
            "engine": {"args": [{"name": "max-model-len", "values": ["1"]}]},
            "podTemplate": {"anything": {"goes": 1}},
        }});
        assert_eq!(schema_violations(&manifest), [""; 0]);
    }

    #[test]
    fn each_kind_of_violation_names_its_field() {
        let manifest = json!({"spec": {
            "model": {"servedNames": ["a", "a"]},
            "replicas": -1,
            "runPolicy": "Walk",
            "resources": {"cpu": 1.5},
            "engine": {"args": [{"name": "x", "values": [1]}, {"name": "x"}]},
            "replica": 1,
            "colour": "red",
        }, "replicas": 2});
        let found = schema_violations(&manifest).join("\n");
        assert!(!found.contains("0.0"), "{found}");
        assert!(found.lines().any(|line| line == "spec.colour: is no known field"), "{found}");
        for expected in [
            "spec.model.uri: is required",
            "spec.model.servedNames[1]: stands in the list twice",
            "spec.replicas: must be at least 0",
            "spec.runPolicy: must be one of Run, Paused, Stopped",
            "spec.resources.cpu: must be a quantity",
            "spec.engine.args[0].values[0]: must be a string",
            "spec.engine.args[1]: stands in the list twice",
            "spec.replica: is no known field; did you mean replicas?",
            "replicas: is no known field",
        ] {
            assert!(found.contains(expected), "{expected} is not in\n{found}");
        }
        assert_eq!(schema_violations(&json!({})), ["spec: is required"]);
    }

    #[test]
    fn a_list_beyond_its_bound_is_told_of_once() {
        let names: Vec<_> = (0..20_000).map(|_| "-").collect();
        let args: Vec<_> = names.iter().map(|name| json!({"name": name, "values": [1]})).collect();
        let spec = json!({"model": {"uri": "pvc://c/m", "servedNames": names}, "engine": {"args": args}});
        let mut found = schema_violations(&json!({"spec": spec}));
        found.sort();
        assert_eq!(
            found,
            ["spec.engine.args: may hold at most 64", "spec.model.servedNames: may hold at most 16"]
        );
        let labels: Map<String, Value> = (0..20_000).map(|i| (i.to_string(), json!(1))).collect();
        let spec = json!({"model": {"uri": "pvc://c/m"}, "scheduling": {"nodeSelector": labels}});
        let found = schema_violations(&json!({"spec": spec}));
        assert_eq!(found, ["spec.scheduling.nodeSelector: may hold at most 32 entries"]);
    }

    #[test]
    fn a_nul_character_is_refused_where_it_stands() {
        let engine = json!({
            "args": [{"name": "seed", "values": ["1", "2\u{0}"]}],
            "env": [{"name": "A", "value": "\u{0}"}],
        });
        let found = schema_violations(&json!({"spec": {"model": {"uri": "pvc://c/m"}, "engine": engine}}));
        assert_eq!(
            found,
            [
                "spec.engine.args[0].values[1]: must not hold a NUL character",
                "spec.engine.env[0].value: must not hold a NUL character",
            ]
        );
    }
}
