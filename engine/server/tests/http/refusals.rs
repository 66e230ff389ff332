use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::TestServer;

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

/// Sends what must be refused, checks the error's shape, and returns its type and field.
async fn refusal(server: &TestServer, path: &str, body: Value) -> (u16, String, String) {
    let (status, answer) = server.post(path, body).await;
    let error = answer["error"].as_object().unwrap_or_else(|| panic!("no error: {answer}"));
    assert_eq!(error.keys().collect::<Vec<_>>(), ["message", "type", "param", "code"]);
    assert_eq!(error["code"], status);
    assert!(!error["message"].as_str().unwrap().is_empty());
    let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
    (status, text("type"), text("param"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_honoured_is_a_400_that_names_the_field() {
    let server = TestServer::start().await;
    let cases = [
        (COMPLETIONS, json!({"prompt": "a", "temperature": -1}), "temperature"),
        (COMPLETIONS, json!({"prompt": "a", "logprobs": 21}), "logprobs"),
        (COMPLETIONS, json!({"prompt": "a", "logprobs": -1}), "logprobs"),
        (COMPLETIONS, json!({"prompt": "a", "max_tokens": 0}), "max_tokens"),
        (COMPLETIONS, json!({"prompt": "a", "max_tokens": 10_000}), "input_tokens"),
        (COMPLETIONS, json!({"prompt": "a".repeat(300)}), "input_tokens"),
        (COMPLETIONS, json!({"prompt": "a".repeat(100_000)}), "input_text"),
        (COMPLETIONS, json!({"prompt": vec![7; 256]}), "input_tokens"),
        (COMPLETIONS, json!({"prompt": vec!["a"; 9], "n": 128, "temperature": 1}), "n"),
        (COMPLETIONS, json!({"prompt": ""}), "prompt"),
        (COMPLETIONS, json!({"prompt": []}), "prompt"),
        (COMPLETIONS, json!({"prompt": [[7], []]}), "prompt"),
        (COMPLETIONS, json!({"prompt": [265]}), "prompt"),
        (COMPLETIONS, json!({}), "prompt"),
        (COMPLETIONS, json!({"prompt": "a", "suffix": "b"}), "suffix"),
        (COMPLETIONS, json!({"prompt": "a", "n": 3, "best_of": 2}), "best_of"),
        (COMPLETIONS, json!({"prompt": "a", "best_of": 129}), "best_of"),
        (COMPLETIONS, json!({"prompt": "a", "best_of": 2, "temperature": 0}), "best_of"),
        (COMPLETIONS, json!({"prompt": "a", "best_of": 2, "stream": true}), "best_of"),
        (COMPLETIONS, json!({"prompt": "a", "min_tokens": 17}), "min_tokens"),
        (COMPLETIONS, json!({"prompt": "a", "prompt_logprobs": 21}), "prompt_logprobs"),
        (COMPLETIONS, json!({"prompt": "a", "prompt_logprobs": 0, "stream": true}), "prompt_logprobs"),
        (COMPLETIONS, json!({"prompt": "a", "logit_bias": {"265": 1}}), "logit_bias"),
        (COMPLETIONS, json!({"prompt": "a", "allowed_token_ids": [265]}), "allowed_token_ids"),
        (COMPLETIONS, json!({"prompt": "a", "frequency_penalty": 3}), "frequency_penalty"),
        (COMPLETIONS, json!({"prompt": "a", "use_beam_search": true, "n": 2, "best_of": 3}), "best_of"),
        (COMPLETIONS, json!({"prompt": "a", "use_beam_search": true, "top_p": 0.5}), "top_p"),
        (COMPLETIONS, json!({"prompt": "a", "use_beam_search": true, "echo": true, "logprobs": 1}), "echo"),
        (CHAT, json!({"messages": [{"role": "user", "content": "a"}], "best_of": 2}), "best_of"),
        (
            CHAT,
            json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 2, "min_tokens": 3}),
            "min_tokens",
        ),
        (COMPLETIONS, json!({"prompt": "a", "stream_options": {"include_usage": true}}), "stream_options"),
        (COMPLETIONS, json!({"prompt": "a", "no_such_field": 1}), "no_such_field"),
        (COMPLETIONS, json!({"promt": "a"}), "promt"),
        (COMPLETIONS, json!({"prompt": "a", "use_beam_search": true, "seed": 1}), "seed"),
        (COMPLETIONS, json!({"prompt": "a", "length_penalty": 2}), "length_penalty"),
        (CHAT, json!({"message": [{"role": "user", "content": "a"}]}), "message"),
        (
            COMPLETIONS,
            json!({"prompt": "a", "stream": true, "stream_options": {"include_usage": true, "usage": 1}}),
            "stream_options",
        ),
        (CHAT, json!({"messages": [{"role": "user", "content": "a", "weight": 1}]}), "messages"),
        (CHAT, json!({"messages": []}), "messages"),
        (CHAT, json!({}), "messages"),
        (CHAT, json!({"messages": [{"role": "user", "content": ""}]}), "prompt"),
        (CHAT, json!({"messages": [{"role": "user", "content": "a"}], "tools": []}), "tools"),
        (CHAT, json!({"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2}), "top_logprobs"),
        (
            CHAT,
            json!({"messages": [{"role": "user", "content": "a"}], "max_completion_tokens": 0}),
            "max_completion_tokens",
        ),
        (
            CHAT,
            json!({"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_object"}}),
            "response_format",
        ),
    ];
    for (path, body, field) in cases {
        let mut body = body;
        body["model"] = json!("m");
        let shown: String = body.to_string().chars().take(100).collect();
        let wanted = (400, "BadRequestError".to_owned(), field.to_owned());
        assert_eq!(refusal(&server, path, body).await, wanted, "{shown}");
    }
    let answer = server.ask(COMPLETIONS, json!({"model": "m", "prompt": "hello"})).await;
    assert_eq!(answer["choices"][0]["text"], "hello", "the server goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_model_is_a_404() {
    let server = TestServer::start().await;
    let (status, kind, param) = refusal(&server, COMPLETIONS, json!({"model": "x", "prompt": "a"})).await;
    assert_eq!((status, kind.as_str(), param.as_str()), (404, "NotFoundError", "model"));
    let (_, answer) = server.post(CHAT, json!({"model": "x", "messages": []})).await;
    let message = answer["error"]["message"].as_str().unwrap();
    assert_eq!(message, "The model `x` does not exist. This engine serves `m`, `alias`.");
    let names: Vec<String> = (0..20).map(|i| format!("name-{i}")).collect();
    let flags: Vec<&str> =
        ["--served-model-name"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let server = TestServer::start_with(&flags).await;
    let (status, text) = server.get("/v1/models/x").await;
    assert!(status == 404 && text.contains("and 14 more.") && !text.contains("name-6"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_json_object_is_a_400() {
    let server = TestServer::start().await;
    let url = format!("{}{COMPLETIONS}", server.url);
    let deep = format!("{{\"prompt\": {}", "[".repeat(200_000));
    let twice = r#"{"prompt": "a", "prompt": "b"}"#;
    for body in ["", "{", "[]", "null", "{\"prompt\": \"\\ud800\"}", twice, &deep] {
        let request =
            server.client.post(&url).header("content-type", "application/json").body(body.to_owned());
        let response = request.send().await.unwrap();
        assert_eq!(response.status().as_u16(), 400, "{}", &body[..body.len().min(40)]);
    }
    let response =
        server.client.post(&url).header("content-type", "text/plain").body("{}").send().await.unwrap();
    assert_eq!(response.status().as_u16(), 400);
    assert!(response.text().await.unwrap().contains("application/json"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_beyond_the_limit_is_a_413() {
    let server = TestServer::start().await;
    let request =
        server.client.post(format!("{}{COMPLETIONS}", server.url)).header("content-type", "application/json");
    let response = request.body(vec![b' '; (16 << 20) + 1]).send().await.unwrap();
    assert_eq!(response.status().as_u16(), 413);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_paths_and_methods_are_refused_in_the_same_shape() {
    let server = TestServer::start().await;
    assert_eq!(refusal(&server, "/v1/embeddings", json!({})).await.0, 404);
    assert_eq!(refusal(&server, "/v1/models", json!({})).await.0, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_v1_asks_for_the_key() {
    let server = TestServer::start_with(&["--api-key", "k1", "k2"]).await;
    let status = async |path: &str, header: Option<&str>| {
        let mut request = server.client.get(format!("{}{path}", server.url));
        if let Some(value) = header {
            request = request.header("authorization", value);
        }
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(status("/v1/models", None).await, 401);
    assert_eq!(status("/v1/models", Some("Bearer wrong")).await, 401);
    assert_eq!(status("/v1/models", Some("Basic k1")).await, 401);
    assert_eq!(status("/v1/models", Some("Bearer k1")).await, 200);
    assert_eq!(status("/v1/models", Some("bearer k2")).await, 200);
    for open in ["/health", "/livez", "/readyz", "/metrics", "/version", "/ping"] {
        assert_eq!(status(open, None).await, 200, "{open}");
    }
    let (status, kind, _) = refusal(&server, COMPLETIONS, json!({"model": "m", "prompt": "a"})).await;
    assert_eq!((status, kind.as_str()), (401, "AuthenticationError"));
}

/// Choices that the engine has taken.
fn taken(page: &serde_json::Value) -> u64 {
    page["running"].as_u64().unwrap() + page["waiting"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_do_not_come_take_no_place_from_those_that_do() {
    let server = TestServer::start_with(&["--max-num-seqs", "1", "--max-num-queued-reqs", "1"]).await;
    let mut silent = Vec::new();
    for _ in 0..8 {
        let mut connection = server.connect().await;
        let head = format!(
            "POST {COMPLETIONS} HTTP/1.1\r\nhost: m\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
        );
        connection.write_all(head.as_bytes()).await.unwrap();
        silent.push(connection);
    }
    server.wait_for(|page| page["in_flight"] == 8).await;
    assert_eq!(server.post(COMPLETIONS, json!({"model": "m", "prompt": "hello"})).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_announced_too_large_is_refused_before_it_comes() {
    let server = TestServer::start().await;
    let mut connection = server.connect().await;
    let head = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nhost: m\r\ncontent-type: application/json\r\ncontent-length: 20000000\r\n\r\n{{"
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    let read = tokio::time::timeout(std::time::Duration::from_secs(30), connection.read_exact(&mut answer));
    read.await.expect("an answer comes").unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}

#[tokio::test(flavor = "multi_thread")]
async fn free_form_fields_are_bounded_before_they_are_read() {
    let server = TestServer::start().await;
    let long: Vec<u32> = vec![1; 40_000];
    let chat = json!({
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "chat_template_kwargs": {"a": long},
    });
    let search = json!({"model": "m", "prompt": "a", "use_beam_search": true, "n": 2, "stop": long});
    for (path, body, name) in [(CHAT, chat, "chat_template_kwargs"), (COMPLETIONS, search, "stop")] {
        let (status, answer) = server.post(path, body).await;
        assert_eq!(status, 400);
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("{name} is longer than 65536 bytes")), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_is_a_503_that_says_when_to_come_again() {
    let server = TestServer::start_with(&["--max-num-seqs", "1", "--max-num-queued-reqs", "1"]).await;
    server.gate.close();
    let request = || json!({"model": "m", "prompt": "hello"});
    let first = server.post(COMPLETIONS, request());
    let second = server.post(COMPLETIONS, request());
    let third = async {
        server.wait_for(|page| taken(page) == 2).await;
        let request = server.client.post(format!("{}{COMPLETIONS}", server.url)).json(&request());
        let response = request.send().await.unwrap();
        server.gate.open();
        response
    };
    let (first, second, third) = tokio::join!(first, second, third);
    assert_eq!((first.0, second.0, third.status().as_u16()), (200, 200, 503));
    assert_eq!(third.headers()["retry-after"], "1");
    assert!(third.headers().get("x-regatta-draining").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_never_be_served_is_a_400_also_while_the_server_is_full() {
    let flags = ["--max-num-seqs", "1", "--max-num-queued-reqs", "0", "--max-num-queued-tokens", "30"];
    let server = TestServer::start_with(&flags).await;
    server.gate.close();
    let first = server.post(COMPLETIONS, json!({"model": "m", "prompt": "hello"}));
    let others = async {
        server.wait_for(|page| taken(page) == 1).await;
        let cases = [
            (COMPLETIONS, json!({"prompt": "hello"}), 503, ""),
            (COMPLETIONS, json!({"prompt": "a", "n": 2}), 400, "n"),
            (COMPLETIONS, json!({"prompt": vec!["a"; 2]}), 400, "n"),
            (COMPLETIONS, json!({"prompt": "a".repeat(300)}), 400, "input_tokens"),
            (COMPLETIONS, json!({"prompt": "a".repeat(100_000)}), 400, "input_text"),
            (COMPLETIONS, json!({"prompt": "a", "max_tokens": 10_000}), 400, "input_tokens"),
            (COMPLETIONS, json!({"prompt": "a", "temprature": 1}), 400, "temprature"),
            (COMPLETIONS, json!({"prompt": "a", "priority": 1}), 400, "priority"),
            (COMPLETIONS, json!({"prompt": vec![5; 40], "max_tokens": 1}), 400, "prompt"),
            (COMPLETIONS, json!({"prompt": "a", "model": "x"}), 404, "model"),
            (CHAT, json!({"messages": []}), 400, "messages"),
            (CHAT, json!({"messages": [{"role": "user", "content": "a".repeat(300)}]}), 400, "input_tokens"),
        ];
        for (path, body, status, field) in cases {
            let shown: String = body.to_string().chars().take(60).collect();
            let found = refusal(&server, path, body).await;
            assert_eq!((found.0, found.2.as_str()), (status, field), "{shown}");
        }
        server.gate.open();
    };
    assert_eq!(tokio::join!(first, others).0.0, 200);
    server.wait_for(|page| page["in_flight"] == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_reaches_a_client_that_is_still_sending() {
    let server = TestServer::start_with(&["--api-key", "k"]).await;
    let body = format!("{{\"prompt\": \"{}\"}}", "a".repeat(12 << 20));
    let request = || {
        let request = server.client.post(format!("{}{COMPLETIONS}", server.url));
        request.header("content-type", "application/json").body(body.clone())
    };
    assert_eq!(request().send().await.unwrap().status().as_u16(), 401);
    server.state.terminate();
    assert_eq!(request().bearer_auth("k").send().await.unwrap().status().as_u16(), 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn room_is_counted_in_choices_and_given_to_all_of_a_request_or_none() {
    let server = TestServer::start_with(&["--max-num-seqs", "1", "--max-num-queued-reqs", "3"]).await;
    server.gate.close();
    let request = |prompts: usize| json!({"model": "m", "prompt": vec!["hello"; prompts]});
    let three = server.post(COMPLETIONS, request(3));
    let others = async {
        server.wait_for(|page| page["waiting"] == 3).await;
        let two = server.post(COMPLETIONS, request(2)).await;
        let one = server.post(COMPLETIONS, request(1));
        let open = async {
            server.wait_for(|page| page["in_flight"] == 2).await;
            server.gate.open();
        };
        (two, tokio::join!(one, open).0)
    };
    let (three, (two, one)) = tokio::join!(three, others);
    assert_eq!((three.0, two.0, one.0), (200, 503, 200), "two more do not fit, one more does");
    let (status, kind, field) = refusal(&server, COMPLETIONS, request(5)).await;
    assert_eq!((status, kind.as_str(), field.as_str()), (400, "BadRequestError", "n"), "five never fit");
    server.ask(COMPLETIONS, request(4)).await;
}
