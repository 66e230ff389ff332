//! Files and ports that engine arguments name. Each pod has its own; engines on one machine would share them.

use std::collections::HashMap;

use anyhow::bail;
use regatta_planner::ValidatedService;
use serde_json::Value;

/// Where the engine publishes KV events when its configuration names no endpoint.
const KV_EVENTS_ENDPOINT: &str = "tcp://*:5557";

/// Refuses services of which two engines would write one file or listen on one port.
///
/// # Errors
/// Names the first such service, its argument and the remedy.
pub(crate) fn check(services: &[ValidatedService]) -> anyhow::Result<()> {
    let mut holders: HashMap<String, &str> = HashMap::new();
    for service in services.iter().filter(|service| service.replicas > 0) {
        let (name, replicas) = (service.name.as_str(), service.replicas);
        let all = service
            .args
            .iter()
            .flat_map(|(arg, values)| held(arg, values).into_iter().map(move |h| (arg, h)));
        for (arg, held) in all {
            if replicas > 1 {
                bail!(
                    "LLMService {name}: spec.engine.args: --{arg} gives all {replicas} replicas {held}, which \
                     engines on one machine cannot share: set replicas: 1, or remove the argument"
                );
            }
            if let Some(other) = holders.get(&held) {
                bail!(
                    "LLMService {name}: spec.engine.args: --{arg} gives it {held}, which LLMService {other} has \
                     already: give it another one"
                );
            }
            holders.insert(held, name);
        }
    }
    Ok(())
}

/// What one engine alone can have, in words.
fn held(arg: &str, values: &[String]) -> Vec<String> {
    let Some(value) = values.first() else { return Vec::new() };
    match arg {
        "record-schedule" => vec![format!("the file '{value}'")],
        "kv-events-config" => endpoints(value).iter().map(|e| format!("the endpoint '{e}'")).collect(),
        _ => Vec::new(),
    }
}

/// Where an engine with this `--kv-events-config` listens. What is wrong with the value, the engine says itself; port
/// 0 is another port for each engine.
fn endpoints(config: &str) -> Vec<String> {
    let config: Value = serde_json::from_str(config).unwrap_or_default();
    if config["enable_kv_cache_events"] != true || config["publisher"] == "null" {
        return Vec::new();
    }
    let first = config["endpoint"].as_str().unwrap_or(KV_EVENTS_ENDPOINT);
    let all = [Some(first), config["replay_endpoint"].as_str()];
    all.into_iter().flatten().filter(|e| !e.ends_with(":0")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::testing::service;

    fn outcome(services: &[ValidatedService]) -> String {
        check(services).map_or_else(|error| error.to_string(), |()| "taken".to_owned())
    }

    #[test]
    fn replicas_that_would_write_one_file_are_refused_with_the_remedy() {
        let args = [("seed", "1"), ("record-schedule", "plan.jsonl")];
        let told = outcome(&[service("default", "a", 2, &args)]);
        for part in ["LLMService a", "spec.engine.args: --record-schedule", "'plan.jsonl'", "set replicas: 1"]
        {
            assert!(told.contains(part), "{part} is not in {told}");
        }
        for replicas in [0, 1] {
            assert_eq!(outcome(&[service("default", "a", replicas, &args)]), "taken");
        }
    }

    #[test]
    fn replicas_that_would_listen_on_one_port_are_refused() {
        let cases = [
            (r#"{"enable_kv_cache_events": true}"#, "'tcp://*:5557'"),
            (r#"{"enable_kv_cache_events": true, "endpoint": "tcp://*:7000"}"#, "'tcp://*:7000'"),
            (
                r#"{"enable_kv_cache_events": true, "endpoint": "tcp://*:0", "replay_endpoint": "tcp://*:7001"}"#,
                "'tcp://*:7001'",
            ),
            (r#"{"enable_kv_cache_events": true, "endpoint": "tcp://*:0"}"#, "taken"),
            (r#"{"enable_kv_cache_events": true, "publisher": "null"}"#, "taken"),
            (r#"{"enable_kv_cache_events": false}"#, "taken"),
            ("{", "taken"),
        ];
        for (config, expected) in cases {
            let told = outcome(&[service("default", "a", 2, &[("kv-events-config", config)])]);
            assert!(told.contains(expected), "{config}: {told}");
        }
    }

    #[test]
    fn two_services_get_no_file_in_common() {
        let with = |name: &str, file: &str| service("default", name, 1, &[("record-schedule", file)]);
        assert_eq!(outcome(&[with("a", "f"), with("b", "g")]), "taken");
        let told = outcome(&[with("a", "f"), with("b", "f")]);
        assert!(told.contains("LLMService b") && told.contains("LLMService a has already"), "{told}");
    }
}
