//! The CustomResourceDefinition as it is committed and installed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::Value;

use crate::LLMService;

/// The definition of `LLMService`.
///
/// # Panics
/// When the derived schema does not have the shape of a definition, which a test rules out.
pub fn definition() -> CustomResourceDefinition {
    let mut value = serde_json::to_value(LLMService::crd()).expect("a definition is JSON");
    tidy(&mut value);
    serde_json::from_value(value).expect("tidying keeps the shape")
}

/// The definition as YAML, as committed in `crds/llmservice.yaml`.
///
/// # Panics
/// As [`definition`].
pub fn yaml() -> String {
    let value = serde_json::to_value(definition()).expect("a definition is JSON");
    serde_saphyr::to_string(&value).expect("JSON is YAML")
}

/// Optional fields are left out, never null: CEL's `has` then means "given". Line breaks of the source end here:
/// `kubectl explain` breaks lines itself.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.get("nullable") == Some(&Value::Bool(true)) {
                map.remove("nullable");
                if let Some(Value::Array(variants)) = map.get_mut("enum") {
                    variants.retain(|variant| !variant.is_null());
                }
            }
            if let Some(Value::String(text)) = map.get_mut("description") {
                *text = text.replace('\n', " ");
            }
            map.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}
