//! Committed files that are generated from the types, and what must hold for the schema as a whole.

use serde_json::Value;

const COMMITTED: &str = include_str!("../llmservice.yaml");
const PAGE: &str = include_str!("../../docs/src/reference/llmservice.md");

#[test]
fn the_committed_crd_is_current() {
    assert_eq!(COMMITTED, regatta_crds::yaml(), "run: regatta crd > crds/llmservice.yaml");
}

#[test]
fn the_reference_page_is_current() {
    assert_eq!(
        PAGE,
        regatta_crds::markdown(),
        "run: regatta crd --markdown > docs/src/reference/llmservice.md"
    );
}

#[test]
fn the_crd_stays_under_64_kib() {
    assert!(COMMITTED.len() < 64 * 1024, "{} bytes", COMMITTED.len());
}

fn root() -> Value {
    let crd = serde_json::to_value(regatta_crds::definition()).expect("JSON");
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

fn walk(schema: &Value, path: &str, visit: &mut impl FnMut(&Value, &str)) {
    visit(schema, path);
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        walk(child, &format!("{path}.{name}"), visit);
    }
    for (key, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(child) = schema.get(key) {
            walk(child, &format!("{path}{mark}"), visit);
        }
    }
}

#[test]
fn every_list_map_and_string_is_bounded() {
    walk(&root(), "", &mut |schema, path| {
        let bound = match schema["type"].as_str() {
            Some("array") => "maxItems",
            Some("string") if schema.get("enum").is_none() && schema.get("format").is_none() => "maxLength",
            Some("object") if schema.get("additionalProperties").is_some() => "maxProperties",
            _ => return,
        };
        assert!(schema.get(bound).is_some(), "{path} has no {bound}");
    });
}

#[test]
fn every_list_says_how_it_is_merged() {
    walk(&root(), "", &mut |schema, path| {
        if schema["type"] == "array" {
            assert!(schema.get("x-kubernetes-list-type").is_some(), "{path}");
        }
    });
}

#[test]
fn every_field_of_ours_is_described_and_every_rule_has_a_message() {
    const THEIRS: [&str; 2] = [".spec.scheduling.tolerations[].", ".status.conditions[]."];
    walk(&root(), "", &mut |schema, path| {
        let is_field = !path.ends_with("[]") && !path.ends_with("{}");
        if is_field && !THEIRS.iter().any(|theirs| path.starts_with(theirs)) {
            assert!(schema["description"].as_str().is_some_and(|d| !d.is_empty()), "{path}");
        }
        for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
            assert!(rule["message"].as_str().is_some_and(|m| m.len() > 10), "{path}: {rule}");
        }
    });
}

#[test]
fn the_rules_name_exactly_what_the_operator_owns() {
    let text = COMMITTED.replace('\n', " ");
    let list = |names: &[&str]| format!("!(self in ['{}'])", names.join("', '"));
    assert!(text.contains(&list(&regatta_crds::OWNED_ARGS)));
    assert!(text.contains(&list(&regatta_crds::OWNED_ENV)));
}
