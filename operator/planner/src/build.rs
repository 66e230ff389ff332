//! Pure builders, one file for each kind: a valid service in, an object out.

mod engine;
mod model;
mod owner;
mod pod;
mod revision;
mod service;
mod template;

pub use engine::args as engine_args;
pub use model::model_path;
pub use pod::pod;
pub use revision::controller_revision;
pub use service::service;
pub use template::{DRAIN_MARGIN, TEMPLATE_VERSION, template};

use std::collections::BTreeMap;

use crate::contract::{MANAGED_BY_LABEL, MANAGED_BY_VALUE, NAME_LABEL, NAME_VALUE, SERVICE_LABEL};

/// Labels of every object of the LLMService `name`.
pub fn labels(name: &str) -> BTreeMap<String, String> {
    [(NAME_LABEL, NAME_VALUE), (MANAGED_BY_LABEL, MANAGED_BY_VALUE), (SERVICE_LABEL, name)]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into()
}

/// Label selector of the pods of the LLMService `name`, as `kubectl get pods -l` takes it.
pub fn selector(name: &str) -> String {
    format!("{SERVICE_LABEL}={name},{MANAGED_BY_LABEL}={MANAGED_BY_VALUE}")
}

#[cfg(test)]
pub(crate) mod fixtures;
