//! Schemas that the derive cannot express: list keys and bounds, and Kubernetes' own types without their prose.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// An object whose fields the API server keeps unseen.
pub(crate) fn preserved_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// A Kubernetes quantity, as a number or a string.
pub(crate) fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true, "maxLength": 32})
}

/// The set of names under which a model is served.
pub(crate) fn served_names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "x-kubernetes-list-type": "set", "minItems": 1, "maxItems": 16,
        "items": {"type": "string", "minLength": 1, "maxLength": 128},
    })
}

/// A list of at most `ITEMS` strings of at most `LENGTH` bytes, replaced whole by server-side apply.
pub(crate) fn string_list<const ITEMS: u32, const LENGTH: u32>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "x-kubernetes-list-type": "atomic", "maxItems": ITEMS,
        "items": {"type": "string", "maxLength": LENGTH},
    })
}

/// A list of at most `ITEMS` objects, merged by their field `name`.
pub(crate) fn keyed_by_name<T: JsonSchema, const ITEMS: u32>(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "maxItems": ITEMS, "items": generator.subschema_for::<T>(),
    })
}

/// Labels of a node.
pub(crate) fn node_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 32, "additionalProperties": {"type": "string", "maxLength": 63},
    })
}

/// `Toleration` of the core API.
pub(crate) fn tolerations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "x-kubernetes-list-type": "atomic", "maxItems": 32,
        "items": {"type": "object", "properties": {
            "effect": {"type": "string", "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
            "key": {"type": "string", "maxLength": 317},
            "operator": {"type": "string", "enum": ["Exists", "Equal"]},
            "tolerationSeconds": {"type": "integer", "format": "int64"},
            "value": {"type": "string", "maxLength": 63},
        }},
    })
}

/// `Condition` of the meta API, keyed by type.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"], "maxItems": 16,
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "message": {"type": "string", "maxLength": 32768},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                "reason": {
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "type": {"type": "string", "maxLength": 316},
            },
        },
    })
}
