//! What clients see of the prefix cache.

use serde_json::{Value, json};

use crate::harness::TestServer;

const DETAILS: &str = "--enable-prompt-tokens-details";

/// A prompt of two blocks and a token.
fn body(fields: Value) -> Value {
    let mut body = json!({"model": "m", "prompt": [5, 6, 7, 8, 9, 10, 11, 12, 13], "max_tokens": 2});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

async fn cached(server: &TestServer, fields: Value) -> Value {
    let answer = server.ask("/v1/completions", body(fields)).await;
    answer["usage"]["prompt_tokens_details"]["cached_tokens"].clone()
}

#[tokio::test]
async fn usage_says_how_many_prompt_tokens_were_cached_where_that_is_asked_for() {
    let server = TestServer::start_with(&[DETAILS]).await;
    assert_eq!(cached(&server, json!({})).await, 0);
    assert_eq!(cached(&server, json!({})).await, 8);
    let streamed = json!({"stream": true, "stream_options": {"include_usage": true}});
    let events = server.stream("/v1/completions", body(streamed)).await;
    assert_eq!(events.last().unwrap()["usage"]["prompt_tokens_details"]["cached_tokens"], 8);
    let searched = json!({"n": 2, "use_beam_search": true});
    assert_eq!(cached(&server, searched).await, 8);
    assert_eq!(cached(&server, json!({"best_of": 5, "temperature": 1.0})).await, 8);
    // What is cut off by a stop string has been told before.
    assert_eq!(cached(&server, json!({"n": 2, "temperature": 1.0})).await, 8);

    let server = TestServer::start().await;
    assert_eq!(cached(&server, json!({})).await, Value::Null);
}

#[tokio::test]
async fn requests_share_the_cache_with_those_of_the_same_salt_only() {
    let server = TestServer::start_with(&[DETAILS]).await;
    for (salt, expected) in [(json!(null), 0), (json!("one"), 0), (json!("other"), 0), (json!("one"), 8)] {
        assert_eq!(cached(&server, json!({"cache_salt": salt})).await, expected, "{salt}");
    }
    for salt in [json!(""), json!("x".repeat(2000)), json!(7)] {
        let (status, answer) = server.post("/v1/completions", body(json!({"cache_salt": salt}))).await;
        assert_eq!((status, &answer["error"]["param"]), (400, &json!("cache_salt")));
    }
}

#[tokio::test]
async fn a_reset_empties_the_cache_before_the_next_request() {
    let server = TestServer::start_with(&[DETAILS, "--enable-dev-endpoints"]).await;
    assert_eq!(cached(&server, json!({})).await, 0);
    let url = format!("{}/reset_prefix_cache", server.url);
    assert_eq!(server.client.post(&url).send().await.unwrap().status(), 200);
    assert_eq!(cached(&server, json!({})).await, 0);
    assert_eq!(cached(&server, json!({})).await, 8);
    let refused = server.client.post(format!("{url}?reset_running_requests=true")).send().await.unwrap();
    assert_eq!(refused.status(), 400);
    assert_eq!(cached(&server, json!({})).await, 8);
}

#[tokio::test]
async fn a_reset_is_for_servers_that_allow_it_and_clients_with_a_key() {
    let server = TestServer::start().await;
    let reset = |server: &TestServer| server.client.post(format!("{}/reset_prefix_cache", server.url));
    assert_eq!(reset(&server).send().await.unwrap().status(), 404);
    let server = TestServer::start_with(&["--enable-dev-endpoints", "--api-key", "key"]).await;
    assert_eq!(reset(&server).send().await.unwrap().status(), 401);
    assert_eq!(reset(&server).bearer_auth("key").send().await.unwrap().status(), 200);
    let server = TestServer::start_unloaded(&["--enable-dev-endpoints"]).await;
    assert_eq!(reset(&server).send().await.unwrap().status(), 503);
}
