//! From a file to services that can run here.

use std::{io::Read, path::Path};

use anyhow::{Context, bail};
#[cfg(feature = "cel")]
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use regatta_crds::{LLMService, RunPolicy, schema_violations};
use regatta_planner::{Place, ValidatedService, validate};
use serde_json::Value;

use super::exclusive;

/// Largest manifest, in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// Reads every LLMService of `file`; says what it skips.
///
/// # Errors
/// When the file cannot be read, is no YAML, holds no LLMService, or one that a cluster or this machine would refuse.
pub(crate) fn read(file: &Path) -> anyhow::Result<Vec<ValidatedService>> {
    let text = text(file).with_context(|| format!("cannot read {}", file.display()))?;
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).with_context(|| format!("{} is no valid YAML", file.display()))?;
    let mut services: Vec<ValidatedService> = Vec::new();
    for document in documents.iter().filter(|d| !d.is_null()) {
        let kind = document["kind"].as_str().unwrap_or("a document without kind");
        let name = document["metadata"]["name"].as_str().unwrap_or("without name");
        if kind != "LLMService" && kind.eq_ignore_ascii_case("LLMService") {
            bail!("{}: kind {kind} of {name} is spelt LLMService", file.display());
        }
        if kind != "LLMService" {
            say!("skipping {kind} {name}: only LLMServices run here");
            continue;
        }
        let service = parse(document).with_context(|| format!("{}: LLMService {name}", file.display()))?;
        if services.iter().any(|s| (&s.namespace, &s.name) == (&service.namespace, &service.name)) {
            bail!("{}: LLMService {name} stands in it twice", file.display());
        }
        services.push(service);
    }
    if services.is_empty() {
        bail!("{} holds no LLMService", file.display());
    }
    exclusive::check(&services).with_context(|| file.display().to_string())?;
    Ok(services)
}

fn text(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut source: Box<dyn Read> = if file == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(file)?)
    };
    let read = source.by_ref().take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if read as u64 > MAX_BYTES {
        bail!("it is larger than {MAX_BYTES} bytes");
    }
    Ok(text)
}

/// The checks of the API server, then those of the operator.
fn parse(document: &Value) -> anyhow::Result<ValidatedService> {
    if document["apiVersion"] != "regatta.dev/v1alpha1" {
        bail!("apiVersion must be regatta.dev/v1alpha1");
    }
    if !document["metadata"]["name"].is_string() {
        bail!("metadata.name is required and must be a string, as in `metadata: {{name: my-model}}`");
    }
    let violations = schema_violations(document);
    if !violations.is_empty() {
        bail!("{}", violations.join("\n  "));
    }
    // Before types are read: a rule says better what is wrong with a value.
    check_rules(document)?;
    let service: LLMService = serde_json::from_value(document.clone())?;
    let mut valid = validate(&service, Place::Local)?;
    if valid.namespace.is_empty() {
        valid.namespace = "default".into();
    }
    if valid.run_policy == RunPolicy::Stopped {
        valid.replicas = 0;
    }
    Ok(valid)
}

#[cfg(feature = "cel")]
fn check_rules(document: &Value) -> anyhow::Result<()> {
    let Err(errors) = kube::core::cel::validate_cel(&Written(document)) else { return Ok(()) };
    let messages: Vec<String> =
        errors.into_vec().iter().map(|e| told(document, &e.field_path, &e.message)).collect();
    bail!("{}", messages.join("\n  "))
}

/// A broken rule with its place and, for a single value, what stands there.
#[cfg(feature = "cel")]
fn told(document: &Value, path: &str, message: &str) -> String {
    let steps = path.split(['.', '[', ']']).filter(|step| !step.is_empty());
    let value = steps.fold(document, |value, step| match step.parse::<usize>() {
        Ok(index) => &value[index],
        Err(_) => &value[step],
    });
    match value.as_str() {
        Some(text) => format!("{path} '{text}': {message}"),
        None if path.is_empty() => message.to_owned(),
        None => format!("{path}: {message}"),
    }
}

/// An LLMService as it was written: read into types and back, a duration would be spelt in another way.
#[cfg(feature = "cel")]
#[derive(serde::Serialize)]
#[serde(transparent)]
struct Written<'a>(&'a Value);

#[cfg(feature = "cel")]
impl kube::CustomResourceExt for Written<'_> {
    fn crd() -> CustomResourceDefinition {
        LLMService::crd()
    }

    fn crd_name() -> &'static str {
        LLMService::crd_name()
    }

    fn api_resource() -> kube::api::ApiResource {
        LLMService::api_resource()
    }

    fn shortnames() -> &'static [&'static str] {
        LLMService::shortnames()
    }
}

/// The operator's validation repeats the rules.
#[cfg(not(feature = "cel"))]
fn check_rules(_: &Value) -> anyhow::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn of(text: &str) -> anyhow::Result<Vec<ValidatedService>> {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(text.as_bytes()).expect("written");
        read(file.path())
    }

    fn service(name: &str, spec: &str) -> String {
        format!(
            "apiVersion: regatta.dev/v1alpha1\nkind: LLMService\nmetadata: {{name: {name}}}\nspec: {spec}\n"
        )
    }

    #[test]
    fn llmservices_are_taken_and_other_kinds_skipped() {
        let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n";
        let text = [
            service("a", "{model: {uri: 'file:///m'}}"),
            config.into(),
            service("b", "{model: {uri: 'pvc://c/m'}}"),
        ];
        let services = of(&text.join("---\n")).expect("valid");
        assert_eq!(services.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(services[0].namespace, "default");
    }

    #[test]
    fn durations_are_taken_as_they_are_written() {
        for (text, seconds) in [("0s", 0.0), ("1s500ms", 1.5), ("1h30m", 5400.0)] {
            let spec = format!("{{model: {{uri: 'file:///m'}}, rollout: {{drainTimeout: {text}}}}}");
            let services = of(&service("a", &spec)).expect("valid");
            assert_eq!(services[0].drain_timeout.as_secs_f64(), seconds);
        }
    }

    #[test]
    fn a_stopped_service_has_no_replicas_here() {
        let services = of(&service("a", "{model: {uri: 'file:///m'}, runPolicy: Stopped}")).expect("valid");
        assert_eq!(services[0].replicas, 0);
    }

    #[test]
    fn a_manifest_beyond_its_bounds_meets_no_rule() {
        let names = vec!["'-'"; 20_000].join(", ");
        let text = service("a", &format!("{{model: {{uri: org/name, servedNames: [{names}]}}}}"));
        let error = format!("{:#}", of(&text).expect_err("refused"));
        assert!(error.ends_with("LLMService a: spec.model.servedNames: may hold at most 16"), "{error}");
    }

    #[test]
    fn a_service_without_a_name_is_told_so_and_no_more() {
        for metadata in ["{}", "{name: 5}", "[]"] {
            let text = service("a", "{model: {uri: 'file:///m'}}").replace("{name: a}", metadata);
            let error = format!("{:#}", of(&text).expect_err("refused"));
            assert!(error.contains("LLMService without name: metadata.name is required"), "{error}");
            assert!(!error.contains("rule"), "{error}");
        }
    }

    #[test]
    fn each_fault_is_told_with_its_place() {
        let cases = [
            ("", "holds no LLMService"),
            ("a: [", "is no valid YAML"),
            (&service("a", "{model: {uri: 's3://m'}}"), "must start with"),
            (
                &service("a", "{model: {uri: 'file:///m'}, replica: 2}"),
                "spec.replica: is no known field; did you mean replicas?",
            ),
            (
                &service("a", "{model: {uri: org/name}}"),
                "spec.model.uri 'org/name': model.uri must start with",
            ),
            (&service("a", "{model: {uri: org/name}}"), "not looked up on a model hub"),
            (
                &service("a", "{model: {uri: 'file:///m'}, rollout: {drainTimeout: '5'}}"),
                "spec.rollout.drainTimeout '5': rollout.drainTimeout must be a duration such as 90s",
            ),
            (
                &service(
                    "a",
                    "{model: {uri: 'file:///m'}, engine: {args: [{name: x}, {name: port, values: ['1']}]}}",
                ),
                "spec.engine.args[1].name 'port': this engine argument is set by Regatta itself",
            ),
            (&service("a", "{model: {uri: 'file:///m'}}").replace("LLMS", "LLMs"), "is spelt LLMService"),
            (
                &service("a", r#"{model: {uri: 'file:///m'}, engine: {env: [{name: A, value: "\0"}]}}"#),
                "spec.engine.env[0].value: must not hold a NUL character",
            ),
            (
                &service(
                    "a",
                    "{model: {uri: 'file:///m'}, replicas: 2, engine: {args: [{name: record-schedule, values: [f]}]}}",
                ),
                "spec.engine.args: --record-schedule",
            ),
            (&service("A", "{model: {uri: 'file:///m'}}"), "metadata.name must start with a letter"),
            (
                &[service("a", "{model: {uri: 'file:///m'}}"), service("a", "{model: {uri: 'file:///m'}}")]
                    .join("---\n"),
                "twice",
            ),
        ];
        for (text, expected) in cases {
            let error = format!("{:#}", of(text).expect_err("refused"));
            assert!(error.contains(expected), "{error} does not say '{expected}'");
        }
    }
}
