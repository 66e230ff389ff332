use futures::StreamExt;
use serde_json::json;

use crate::harness::{TestServer, events};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loads_is_live_and_not_ready() {
    let mut server = TestServer::start_unloaded(&[]).await;
    assert_eq!(server.get("/livez").await.0, 200);
    assert_eq!(server.get("/readyz").await, (503, "loading\n".to_owned()));
    assert_eq!(server.get("/health").await, (503, "loading\n".to_owned()));
    assert_eq!(server.get("/metrics").await.0, 200);
    let page = server.internal_state().await;
    assert_eq!((&page["ready"], &page["model"]["max_model_len"]), (&json!(false), &json!(0)));
    let response =
        server.client.post(format!("{}/v1/completions", server.url)).json(&json!({})).send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.headers().contains_key("retry-after")), (503, true));
    server.load();
    assert_eq!(server.get("/readyz").await.0, 200);
    assert_eq!(server.get("/health").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_server_is_not_ready_and_serves_on() {
    let server = TestServer::start().await;
    server.state.set_draining(true);
    assert_eq!(server.get("/readyz").await, (503, "draining\n".to_owned()));
    assert_eq!(server.get("/health").await.0, 200);
    assert_eq!(server.internal_state().await["draining"], true);
    server.ask("/v1/completions", json!({"model": "m", "prompt": "hello"})).await;
    server.state.set_draining(false);
    assert_eq!(server.get("/readyz").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminating_server_sends_new_requests_elsewhere_and_finishes_the_others() {
    let server = TestServer::start().await;
    server.gate.close();
    let request = json!({"model": "m", "prompt": "hello", "stream": true});
    let running =
        server.client.post(format!("{}/v1/completions", server.url)).json(&request).send().await.unwrap();
    server.state.terminate();
    assert_eq!(server.get("/readyz").await.0, 503);
    let refused =
        server.client.post(format!("{}/v1/completions", server.url)).json(&request).send().await.unwrap();
    assert_eq!(refused.status().as_u16(), 503);
    for (header, value) in [("x-regatta-draining", "true"), ("connection", "close"), ("retry-after", "1")] {
        assert_eq!(refused.headers()[header], value);
    }
    server.gate.open();
    let events = events(&running.text().await.unwrap());
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "stop");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_connection_frees_its_blocks_within_one_step() {
    let server = TestServer::start().await;
    server.gate.close();
    server.gate.allow(3);
    let request = json!({"model": "m", "prompt": "hello", "ignore_eos": true, "max_tokens": 200, "stream": true, "n": 2});
    let response =
        server.client.post(format!("{}/v1/completions", server.url)).json(&request).send().await.unwrap();
    let mut stream = response.bytes_stream();
    stream.next().await.unwrap().unwrap();
    let page = server.wait_for(|page| page["steps"] == 3).await;
    assert_ne!(page["kv"]["in_use"], 0);
    drop(stream);
    server.wait_for(|page| page["in_flight"] == 0).await;
    server.gate.allow(1);
    let page = server.wait_for(|page| page["running"] == 0).await;
    assert_eq!((&page["steps"], &page["kv"]["in_use"]), (&json!(4), &json!(0)));
    server.gate.open();
    let metrics = server.get("/metrics").await.1;
    let aborted = "vllm:request_success_total{finished_reason=\"abort\",model_name=\"m\",engine=\"0\"} 2";
    assert!(metrics.contains("finished_reason=\"abort\"") && metrics.contains("} 2"), "{aborted}: {metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_before_the_answer_frees_its_blocks_too() {
    let server = TestServer::start().await;
    server.gate.close();
    let request = json!({"model": "m", "prompt": "hello", "ignore_eos": true, "max_tokens": 200});
    let url = format!("{}/v1/completions", server.url);
    let asking = tokio::spawn(server.client.post(url).json(&request).send());
    server.wait_for(|page| page["in_flight"] == 1).await;
    asking.abort();
    server.wait_for(|page| page["in_flight"] == 0).await;
    server.gate.open();
    server.wait_for(|page| page["running"] == 0 && page["waiting"] == 0 && page["kv"]["in_use"] == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_engine_is_unhealthy_and_ends_streams_with_an_error() {
    let mut server = TestServer::start().await;
    server.kill_engine();
    assert_eq!(server.get("/livez").await.0, 200);
    assert_eq!(server.get("/health").await.0, 503);
    assert_eq!(server.get("/readyz").await.0, 503);
    let (status, answer) = server.post("/v1/completions", json!({"model": "m", "prompt": "hello"})).await;
    assert_eq!((status, &answer["error"]["type"]), (500, &json!("InternalServerError")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_after_the_first_event_is_an_error_event_and_done() {
    let server = TestServer::start().await;
    server.gate.close();
    server.gate.allow(2);
    let request = json!({
        "model": "m", "prompt": "hello", "ignore_eos": true, "max_tokens": 200, "n": 2,
        "stream": true, "stream_options": {"include_usage": true},
    });
    let response =
        server.client.post(format!("{}/v1/completions", server.url)).json(&request).send().await.unwrap();
    server.wait_for(|page| page["steps"] == 2).await;
    server.gate.fail();
    let events = events(&response.text().await.unwrap());
    let (error, before) = events.split_last().unwrap();
    assert_eq!(
        (&error["error"]["code"], &error["error"]["type"]),
        (&json!(500), &json!("InternalServerError"))
    );
    assert!(error["error"]["message"].as_str().unwrap().contains("out of luck"));
    assert!(!before.is_empty() && before.iter().all(|event| event.get("error").is_none()));
    let (status, answer) = server.post("/v1/completions", json!({"model": "m", "prompt": "hello"})).await;
    assert_eq!((status, &answer["error"]["code"]), (500, &json!(500)));
    server.wait_for(|page| page["in_flight"] == 0 && page["kv"]["in_use"] == 0).await;
}
