//! Each CEL rule, evaluated in this process as `regatta local` does.
#![cfg(feature = "cel")]

mod cases;

use regatta_crds::LLMService;
use serde_json::Value;

fn refusals(manifest: &Value) -> Vec<String> {
    let service: LLMService =
        serde_json::from_value(manifest.clone()).expect("a manifest has the shape of the type");
    let outcome = service.validate_cel();
    outcome.err().map(|e| e.into_vec()).unwrap_or_default().into_iter().map(|e| e.message).collect()
}

#[test]
fn a_manifest_that_uses_every_field_is_accepted() {
    assert_eq!(refusals(&cases::base()), [""; 0]);
    assert_eq!(regatta_crds::schema_violations(&cases::base()), [""; 0]);
}

#[test]
fn each_rule_refuses_its_case_alone_and_accepts_the_corrected_one() {
    for case in cases::cases() {
        if case.message == "must be a duration such as" {
            continue; // The type itself refuses it before a rule could.
        }
        let found = refusals(&case.refused);
        assert!(found.len() == 1 && found[0].contains(case.message), "{}: {found:?}", case.message);
        assert_eq!(refusals(&case.accepted), [""; 0], "{}", case.message);
        assert_eq!(regatta_crds::schema_violations(&case.accepted), [""; 0], "{}", case.message);
    }
}

#[test]
fn each_rule_has_exactly_one_case() {
    let crd = serde_json::to_value(regatta_crds::definition()).expect("JSON");
    let mut rules = messages(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
    for case in cases::cases() {
        let position = rules.iter().position(|rule| rule.contains(case.message));
        rules.remove(position.unwrap_or_else(|| panic!("no rule says '{}'", case.message)));
    }
    assert_eq!(rules, [""; 0]);
}

/// The messages of all rules in the CRD.
fn messages(schema: &Value) -> Vec<String> {
    let own = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
    let mut all: Vec<String> = own.filter_map(|r| r["message"].as_str()).map(str::to_owned).collect();
    let children = schema["properties"].as_object().into_iter().flatten().map(|(_, child)| child);
    all.extend(children.chain(schema.get("items")).flat_map(messages));
    all
}
