//! From a loose spec to one that can only be valid.
//!
//! The API server checks most rules already (CEL). They are checked here again for `regatta local` and for objects
//! that were stored before a rule existed; what only the place can tell, such as `file://` in a cluster, is checked
//! here alone.

mod error;
mod model;
mod quantity;

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::{
    ConfigMapKeySelector, EnvVar, EnvVarSource, PodTemplateSpec, SecretKeySelector, Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use regatta_crds::{
    EngineEnv, EngineSpec, LLMService, LLMServiceSpec, MAX_NAME, OWNED_ARGS, OWNED_ENV, RunPolicy,
};
use serde::Deserialize;

pub use error::SpecError;
pub use model::ModelSource;

use crate::{hash, names::Claim};

/// Drain timeout of a service that names none.
pub const DEFAULT_DRAIN_TIMEOUT: Duration = Duration::from_secs(300);
const MAX_DRAIN_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Where a service is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In pods.
    Cluster,
    /// As processes of this machine, where `file://` names a file.
    Local,
}

/// A spec that can be planned and built without further questions.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidatedService {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`; empty for a service that is no object of a cluster.
    pub namespace: String,
    /// `metadata.uid`; empty for a service that is no object of a cluster.
    pub uid: String,
    /// Where the weights are.
    pub source: ModelSource,
    /// SHA-256 of the model's file: 64 hexadecimal digits.
    pub sha256: Option<String>,
    /// Names for clients; at least one, no duplicates.
    pub served_names: Vec<String>,
    /// Wanted replicas, before `run_policy`.
    pub replicas: u32,
    /// Whether replicas are kept up.
    pub run_policy: RunPolicy,
    /// Cores asked for.
    pub cpu: Option<Quantity>,
    /// Memory in bytes, request and limit.
    pub memory: Option<Quantity>,
    /// Size of `/dev/shm` in bytes.
    pub shared_memory: Option<Quantity>,
    /// Extended resource and how many of it each pod asks for.
    pub accelerator: Option<(String, u32)>,
    /// Labels a node must carry.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Taints that pods tolerate.
    pub tolerations: Option<Vec<Toleration>>,
    /// PriorityClass of pods.
    pub priority_class_name: Option<String>,
    /// Image of the engine; absent: the operator's default.
    pub image: Option<String>,
    /// Further arguments, each a name without dashes and its values.
    pub args: Vec<(String, Vec<String>)>,
    /// Further environment.
    pub env: Vec<EnvVar>,
    /// How long a replica may finish its requests.
    pub drain_timeout: Duration,
    /// Laid over the rendered pod.
    pub overlay: Option<PodTemplateSpec>,
    /// Hash of everything in the spec that shapes a pod.
    pub spec_hash: String,
}

impl ValidatedService {
    /// What is needed to remove the pods of a service whose spec is not valid: who it is, and no replicas.
    pub fn removable(service: &LLMService) -> Self {
        let meta = &service.metadata;
        Self {
            name: meta.name.clone().unwrap_or_default(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            source: ModelSource::File { path: String::new() },
            sha256: None,
            served_names: Vec::new(),
            replicas: 0,
            run_policy: RunPolicy::Stopped,
            cpu: None,
            memory: None,
            shared_memory: None,
            accelerator: None,
            node_selector: None,
            tolerations: None,
            priority_class_name: None,
            image: None,
            args: Vec::new(),
            env: Vec::new(),
            drain_timeout: DEFAULT_DRAIN_TIMEOUT,
            overlay: None,
            spec_hash: spec_hash(&service.spec),
        }
    }
}

/// Checks `service` for `place`.
///
/// # Errors
/// The first rule that the spec breaks, in words for its author.
pub fn validate(service: &LLMService, place: Place) -> Result<ValidatedService, SpecError> {
    let spec = &service.spec;
    let meta = &service.metadata;
    let name = valid_name(meta.name.as_deref().unwrap_or_default())?;
    let source = model::source(&spec.model.uri, place)?;
    let sha256 = model::sha256(spec.model.sha256.as_deref(), &source)?;
    let served_names = model::served_names(spec.model.served_names.as_deref(), &name)?;
    let resources = spec.resources.clone().unwrap_or_default();
    let cpu = quantity::positive("resources.cpu", resources.cpu)?;
    let memory = quantity::positive("resources.memory", resources.memory)?;
    let shared_memory = quantity::positive("resources.sharedMemory", resources.shared_memory)?;
    quantity::at_most(&shared_memory, &memory)?;
    let scheduling = spec.scheduling.clone().unwrap_or_default();
    let engine = spec.engine.clone().unwrap_or_default();
    Ok(ValidatedService {
        name,
        namespace: meta.namespace.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        source,
        sha256,
        served_names,
        replicas: u32::try_from(spec.replicas).map_err(|_| SpecError::NegativeReplicas(spec.replicas))?,
        run_policy: spec.run_policy.unwrap_or_default(),
        cpu,
        memory,
        shared_memory,
        accelerator: accelerator(spec)?,
        node_selector: scheduling.node_selector,
        tolerations: scheduling.tolerations,
        priority_class_name: scheduling.priority_class_name,
        args: args(&engine)?,
        env: engine.env.iter().flatten().map(env_var).collect::<Result<_, _>>()?,
        image: engine.image,
        drain_timeout: drain_timeout(spec)?,
        overlay: overlay(spec)?,
        spec_hash: spec_hash(spec),
    })
}

/// The names that `service` asks for; none when its spec cannot run in a cluster, so that a broken service keeps no
/// name from a working one.
pub fn claim(service: &LLMService) -> Option<Claim> {
    let valid = validate(service, Place::Cluster).ok()?;
    let created = service.metadata.creation_timestamp.as_ref()?.0;
    Some(Claim { namespace: valid.namespace, service: valid.name, created, served_names: valid.served_names })
}

/// Where the weights of `service` are, if its `model.uri` can be used in a cluster.
pub fn source_of(service: &LLMService) -> Option<ModelSource> {
    model::source(&service.spec.model.uri, Place::Cluster).ok()
}

fn valid_name(name: &str) -> Result<String, SpecError> {
    let valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase());
    if name.len() > MAX_NAME || !starts_well || name.ends_with('-') || !name.bytes().all(valid) {
        return Err(SpecError::Name(name.to_owned()));
    }
    Ok(name.to_owned())
}

fn accelerator(spec: &LLMServiceSpec) -> Result<Option<(String, u32)>, SpecError> {
    let Some(accelerator) = &spec.accelerator else { return Ok(None) };
    let count = accelerator.per_pod.unwrap_or(1);
    match u32::try_from(count) {
        Ok(count) if count >= 1 => Ok(Some((accelerator.resource_name.clone(), count))),
        _ => Err(SpecError::AcceleratorCount(count)),
    }
}

fn args(engine: &EngineSpec) -> Result<Vec<(String, Vec<String>)>, SpecError> {
    let checked = engine.args.iter().flatten().map(|arg| {
        if OWNED_ARGS.contains(&arg.name.as_str()) {
            return Err(SpecError::OwnedArg(arg.name.clone()));
        }
        Ok((arg.name.clone(), arg.values.clone().unwrap_or_default()))
    });
    checked.collect()
}

fn env_var(env: &EngineEnv) -> Result<EnvVar, SpecError> {
    if OWNED_ENV.contains(&env.name.as_str()) {
        return Err(SpecError::OwnedEnv(env.name.clone()));
    }
    if env.value.is_some() && env.value_from.is_some() {
        return Err(SpecError::EnvValueTwice(env.name.clone()));
    }
    let value_from = env.value_from.clone().map(|from| EnvVarSource {
        secret_key_ref: from.secret_key_ref.map(|r| SecretKeySelector {
            name: r.name,
            key: r.key,
            optional: r.optional,
        }),
        config_map_key_ref: from.config_map_key_ref.map(|r| ConfigMapKeySelector {
            name: r.name,
            key: r.key,
            optional: r.optional,
        }),
        ..EnvVarSource::default()
    });
    Ok(EnvVar { name: env.name.clone(), value: env.value.clone(), value_from })
}

fn drain_timeout(spec: &LLMServiceSpec) -> Result<Duration, SpecError> {
    let Some(timeout) = spec.rollout.as_ref().and_then(|r| r.drain_timeout) else {
        return Ok(DEFAULT_DRAIN_TIMEOUT);
    };
    let duration = Duration::from(timeout);
    if timeout.is_negative() || duration > MAX_DRAIN_TIMEOUT {
        return Err(SpecError::DrainTimeout);
    }
    Ok(duration)
}

fn overlay(spec: &LLMServiceSpec) -> Result<Option<PodTemplateSpec>, SpecError> {
    let parse = |value: &serde_json::Value| PodTemplateSpec::deserialize(value);
    spec.pod_template.as_ref().map(parse).transpose().map_err(|e| SpecError::PodTemplate(e.to_string()))
}

/// The rest of the spec moves pods about; it does not change what is in them.
fn spec_hash(spec: &LLMServiceSpec) -> String {
    let shape = LLMServiceSpec { replicas: 0, run_policy: None, ..spec.clone() };
    hash::of_json(&shape).expect("a spec is JSON")
}

#[cfg(test)]
mod tests;
