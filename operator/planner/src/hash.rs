//! Hashes of JSON that do not depend on the order of keys or on absent fields.

use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Characters of a short hash.
pub(crate) const HASH_LEN: usize = 10;

/// Hexadecimal hash of `bytes`, short enough for labels and names.
pub(crate) fn short(bytes: &[u8]) -> String {
    let mut hex: String = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
    hex.truncate(HASH_LEN);
    hex
}

/// Short hash of a value's canonical JSON: keys sorted, nulls dropped.
pub(crate) fn of_json(value: &impl Serialize) -> Result<String, serde_json::Error> {
    let canonical = canonical(serde_json::to_value(value)?);
    Ok(short(canonical.to_string().as_bytes()))
}

fn canonical(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.into_iter().filter(|(_, v)| !v.is_null()).collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(entries.into_iter().map(|(k, v)| (k, canonical(v))).collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(canonical).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn order_of_keys_and_nulls_do_not_change_a_hash() {
        let a = of_json(&json!({"a": 1, "b": {"c": null, "d": [1, 2]}}));
        let b = of_json(&json!({"b": {"d": [1, 2]}, "a": 1}));
        assert_eq!(a.expect("json"), b.expect("json"));
    }

    #[test]
    fn order_of_lists_changes_a_hash() {
        assert_ne!(of_json(&json!([1, 2])).expect("json"), of_json(&json!([2, 1])).expect("json"));
    }
}
