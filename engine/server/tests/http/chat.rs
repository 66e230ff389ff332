use serde_json::{Value, json};

use crate::harness::TestServer;

const PATH: &str = "/v1/chat/completions";

fn hello() -> Value {
    json!([{"role": "user", "content": "hello"}])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_is_answered_with_a_message() {
    let server = TestServer::start().await;
    let answer = server.ask(PATH, json!({"model": "alias", "messages": hello()})).await;
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["model"], "alias");
    let message = json!({"role": "assistant", "content": "hello", "refusal": null});
    let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": "stop", "stop_reason": null});
    assert_eq!(answer["choices"], json!([choice]));
    assert_eq!(answer["usage"], json!({"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_chat_begins_with_the_role_and_ends_with_the_reason() {
    let server = TestServer::start().await;
    let events = server.stream(PATH, json!({"model": "m", "messages": hello(), "stream": true})).await;
    let choices: Vec<_> = events.iter().map(|event| event["choices"][0].clone()).collect();
    let chunk = |delta: Value, finish: Value| json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish, "stop_reason": null});
    let wanted = [
        chunk(json!({"role": "assistant", "content": ""}), Value::Null),
        chunk(json!({"content": "hello"}), Value::Null),
        chunk(json!({}), json!("stop")),
    ];
    assert_eq!(choices, wanted);
    assert!(
        events
            .iter()
            .all(|event| event["object"] == "chat.completion.chunk" && event["id"] == events[0]["id"])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_choice_of_a_streamed_chat_has_its_own_role_and_reason() {
    let server = TestServer::start().await;
    let events =
        server.stream(PATH, json!({"model": "m", "messages": hello(), "stream": true, "n": 2})).await;
    for index in 0..2 {
        let mine: Vec<_> =
            events.iter().map(|event| &event["choices"][0]).filter(|c| c["index"] == index).collect();
        assert_eq!(mine[0]["delta"]["role"], "assistant");
        assert_eq!(mine[1]["delta"]["content"], "hello");
        assert_eq!(mine.last().unwrap()["finish_reason"], "stop");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn log_probabilities_alone_are_enough() {
    let server = TestServer::start().await;
    let answer = server.ask(PATH, json!({"model": "m", "messages": hello(), "logprobs": true})).await;
    let content = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(content.len(), 2);
    assert_eq!(content[0]["token"], "hello");
    assert_eq!(content[0]["bytes"], json!([104, 101, 108, 108, 111]));
    assert_eq!(content[0]["top_logprobs"], json!([]));
    assert!(content[0]["logprob"].is_number());
}

#[tokio::test(flavor = "multi_thread")]
async fn alternatives_are_as_many_as_were_asked_for() {
    let server = TestServer::start().await;
    let request =
        json!({"model": "m", "messages": hello(), "logprobs": true, "top_logprobs": 3, "stream": true});
    let events = server.stream(PATH, request).await;
    let contents =
        events.iter().filter_map(|event| event["choices"][0]["logprobs"]["content"].as_array()).flatten();
    let counts: Vec<_> = contents.map(|token| token["top_logprobs"].as_array().unwrap().len()).collect();
    assert_eq!(counts, [3, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_may_fill_the_room_that_is_left() {
    let server = TestServer::start().await;
    let request = json!({"model": "m", "messages": hello(), "ignore_eos": true});
    let answer = server.ask(PATH, request).await;
    assert_eq!(answer["usage"]["total_tokens"], 256);
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    let request = json!({"model": "m", "messages": hello(), "ignore_eos": true, "max_completion_tokens": 3});
    assert_eq!(server.ask(PATH, request).await["usage"]["completion_tokens"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_has_its_prompts_log_probabilities_beside_the_choices() {
    let server = TestServer::start().await;
    let messages = json!([{"role": "user", "content": "hello wor"}]);
    let request = json!({"model": "m", "messages": messages, "prompt_logprobs": 1, "n": 2, "temperature": 1});
    let answer = server.ask(PATH, request).await;
    let logprobs = answer["prompt_logprobs"].as_array().unwrap();
    assert!(logprobs.len() == 2 && logprobs[0].is_null() && logprobs[1].is_object(), "{answer}");
    assert!(answer["choices"][0].get("prompt_logprobs").is_none());
}
