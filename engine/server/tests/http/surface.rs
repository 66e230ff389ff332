use std::collections::BTreeSet;

use serde_json::json;

use crate::{exposition, harness::TestServer};

#[tokio::test(flavor = "multi_thread")]
async fn the_model_list_has_every_served_name() {
    let server = TestServer::start().await;
    let (status, text) = server.get("/v1/models").await;
    let list: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &list["object"]), (200, &json!("list")));
    let ids: Vec<_> = list["data"].as_array().unwrap().iter().map(|card| card["id"].clone()).collect();
    assert_eq!(ids, ["m", "alias"]);
    assert_eq!(list["data"][0]["max_model_len"], 256);
    assert_eq!(list["data"][0]["object"], "model");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_served_name_has_an_entry_of_its_own() {
    let server = TestServer::start_with(&["--served-model-name", "org/m"]).await;
    let (status, text) = server.get("/v1/models/org/m").await;
    let list: serde_json::Value = serde_json::from_str(&server.get("/v1/models").await.1).unwrap();
    let card: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &card["id"]), (200, &json!("org/m")));
    assert!(list["data"].as_array().unwrap().contains(&card));
    assert_eq!(server.get("/v1/models/other").await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_names_its_request() {
    let server = TestServer::start().await;
    let request =
        server.client.post(format!("{}/v1/completions", server.url)).header("x-request-id", "trace-7");
    let response = request.json(&json!({"model": "m", "prompt": "hello"})).send().await.unwrap();
    assert_eq!(response.headers()["x-request-id"], "trace-7");
    let answer: serde_json::Value = response.json().await.unwrap();
    assert_eq!(answer["id"], "cmpl-trace-7");
    let response = server.client.get(format!("{}/nowhere", server.url)).send().await.unwrap();
    assert!(response.headers().contains_key("x-request-id"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_internal_port_shows_the_state_and_nothing_else() {
    let server = TestServer::start_with(&["--api-key", "k"]).await;
    let page = server.internal_state().await;
    let keys: Vec<_> = page.as_object().unwrap().keys().cloned().collect();
    let wanted = [
        "version",
        "model",
        "ready",
        "draining",
        "in_flight",
        "running",
        "waiting",
        "swapped",
        "kv",
        "steps",
        "isa",
    ];
    assert_eq!(keys, wanted);
    assert_eq!(page["model"], json!({"served_names": ["m", "alias"], "max_model_len": 256}));
    assert_eq!(
        page["kv"],
        json!({"block_size": 4, "num_blocks": 256, "free": 256, "cached": 0, "in_use": 0,
               "num_host_blocks": 0, "host_in_use": 0})
    );
    for (path, status) in [("/v1/models", 404), ("/metrics", 404), ("/", 404)] {
        let response = server.client.get(format!("{}{path}", server.internal_url)).send().await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{path}");
    }
    let response =
        server.client.post(format!("{}/internal/state", server.internal_url)).send().await.unwrap();
    assert_eq!(response.status().as_u16(), 405);
    assert_eq!(
        server.client.get(format!("{}/internal/state", server.url)).send().await.unwrap().status().as_u16(),
        404
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_have_vllms_names_on_the_wire() {
    let server = TestServer::start().await;
    server.ask("/v1/completions", json!({"model": "m", "prompt": "hello world"})).await;
    let response = server.client.get(format!("{}/metrics", server.url)).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let samples = exposition::parse(&response.text().await.unwrap());
    let value = |name: &str| samples.iter().find(|sample| sample.name == name).map(|sample| sample.value);
    let labels = ["model_name=\"m\"", "engine=\"0\""];
    for sample in samples.iter().filter(|sample| sample.name.starts_with("vllm:")) {
        assert!(labels.iter().all(|label| sample.labels.contains(label)), "{sample:?}");
    }
    assert_eq!(value("vllm:num_requests_running"), Some(0.0));
    assert_eq!(value("vllm:num_requests_waiting"), Some(0.0));
    assert_eq!(value("vllm:kv_cache_usage_perc"), Some(0.0));
    assert_eq!(value("vllm:prompt_tokens_total"), Some(4.0));
    assert_eq!(value("vllm:generation_tokens_total"), Some(5.0));
    let modes: Vec<_> = samples.iter().filter(|s| s.name == "vllm:num_preemptions_total").collect();
    assert!(modes.len() == 2 && modes.iter().all(|sample| sample.value == 0.0), "{modes:?}");
    assert!(modes[0].labels.contains("mode=\"recompute\"") || modes[0].labels.contains("mode=\"swap\""));
    assert_eq!(value("vllm:num_requests_swapped"), Some(0.0));
    assert_eq!(value("vllm:cpu_cache_usage_perc"), Some(0.0));
    assert!(value("vllm:prefix_cache_queries_total").is_some());
    assert_eq!(value("vllm:prefix_cache_hits_total"), Some(0.0));
    assert_eq!(value("vllm:time_to_first_token_seconds_count"), Some(1.0));
    assert_eq!(value("vllm:inter_token_latency_seconds_count"), Some(4.0));
    assert_eq!(value("vllm:time_per_output_token_seconds_count"), Some(4.0));
    assert_eq!(value("vllm:gpu_cache_usage_perc"), Some(0.0));
    // One step for the prompt of four tokens, then one for each token but the last.
    assert_eq!(value("vllm:iteration_tokens_total_count"), Some(5.0));
    assert_eq!(value("vllm:iteration_tokens_total_sum"), Some(8.0));
    assert_eq!(value("vllm:e2e_request_latency_seconds_count"), Some(1.0));
    assert_eq!(value("regatta:engine_steps_total"), Some(5.0));
    assert!(value("process_start_time_seconds").is_some_and(|start| start > 0.0));
    let stopped = samples.iter().find(|sample| {
        sample.name == "vllm:request_success_total" && sample.labels.contains("finished_reason=\"stop\"")
    });
    assert_eq!(stopped.map(|sample| sample.value), Some(1.0));
    let config = samples.iter().find(|sample| sample.name == "vllm:cache_config_info").unwrap();
    assert!(config.labels.contains("block_size=\"4\"") && config.labels.contains("num_gpu_blocks=\"256\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn made_up_paths_make_no_label_values() {
    let server = TestServer::start().await;
    server.get("/made/up").await;
    let samples = exposition::parse(&server.get("/metrics").await.1);
    let counted: Vec<_> = samples.iter().filter(|sample| sample.name == "http_requests_total").collect();
    assert!(counted.iter().any(|sample| sample.labels.contains("handler=\"none\"")), "{counted:?}");
    assert!(counted.iter().all(|sample| !sample.labels.contains("made")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_page_lists_every_family_and_no_other() {
    let server = TestServer::start().await;
    server.get("/version").await;
    let scraped = server.get("/metrics").await.1;
    let types = scraped.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let families: BTreeSet<_> = types.collect();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/reference/engine-metrics.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let written: BTreeSet<_> =
        rows.filter_map(|(name, rest)| Some((name, rest.split_once(" |")?.0))).collect();
    assert_eq!(written, families);
}
