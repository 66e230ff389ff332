//! The Regatta API types: `LLMService`, its status, CEL rules and conditions.
//!
//! The types are the source of the CRD: [`yaml`] prints what `crds/llmservice.yaml` holds. Rules that one object
//! can show are CEL rules beside the field they guard, so that the API server refuses what could never run.

// The schema derive repeats each public struct inside a function.
#![allow(unreachable_pub)]

mod check;
mod crd;
mod engine;
mod markdown;
mod model;
mod schema;
mod service;
mod status;
mod workload;

pub use check::schema_violations;
pub use crd::{definition, yaml};
pub use engine::{ConfigKeyRef, EngineArg, EngineEnv, EngineSpec, EnvSource, OWNED_ARGS, OWNED_ENV};
pub use kube::core::Duration;
pub use markdown::markdown;
pub use model::ModelSpec;
pub use service::{LLMService, LLMServiceSpec, RunPolicy};
pub use status::{Address, ConditionType, LLMServiceStatus};
pub use workload::{AcceleratorSpec, ResourcesSpec, RolloutSpec, SchedulingSpec};

/// API group of every kind of ours.
pub const GROUP: &str = "regatta.dev";
/// Longest `metadata.name` of an `LLMService`, in bytes; leaves room for the suffixes of its children.
pub const MAX_NAME: usize = 40;
