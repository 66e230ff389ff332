//! Kinds of faults that other servers had with log-probabilities, usage and several choices.

use serde_json::{Value, json};

use crate::harness::TestServer;

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

fn keys(object: &Value) -> Vec<&str> {
    object.as_object().unwrap_or_else(|| panic!("no object: {object}")).keys().map(String::as_str).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn log_probabilities_have_openais_schema_with_and_without_alternatives() {
    let server = TestServer::start().await;
    let messages = json!([{"role": "user", "content": "hello"}]);
    for top_logprobs in [Value::Null, json!(0), json!(2)] {
        let request =
            json!({"model": "m", "messages": messages, "logprobs": true, "top_logprobs": top_logprobs});
        let answer = server.ask(CHAT, request).await;
        let logprobs = &answer["choices"][0]["logprobs"];
        assert_eq!(keys(logprobs), ["content"]);
        for token in logprobs["content"].as_array().unwrap() {
            assert_eq!(keys(token), ["token", "logprob", "bytes", "top_logprobs"]);
            let top = token["top_logprobs"].as_array().unwrap();
            assert_eq!(top.len() as u64, top_logprobs.as_u64().unwrap_or(0));
            assert!(top.iter().all(|top| keys(top) == ["token", "logprob", "bytes"]));
        }
    }
    let answer = server.ask(COMPLETIONS, json!({"model": "m", "prompt": "hello", "logprobs": 1})).await;
    let logprobs = &answer["choices"][0]["logprobs"];
    assert_eq!(keys(logprobs), ["text_offset", "token_logprobs", "tokens", "top_logprobs"]);
    let lengths: Vec<_> =
        logprobs.as_object().unwrap().values().map(|list| list.as_array().unwrap().len()).collect();
    assert_eq!(lengths, [2; 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_echo_with_log_probabilities_is_answered_in_every_form() {
    let server = TestServer::start().await;
    for prompt in [json!("hello"), json!("hello world"), json!([39, 40, 41])] {
        for (n, stream, max_tokens) in
            [(1, false, 1), (1, true, 2), (2, false, 1), (2, true, 1), (1, false, 0)]
        {
            let request = json!({
                "model": "m", "prompt": prompt, "echo": true, "logprobs": 1, "n": n, "stream": stream,
                "max_tokens": max_tokens, "return_token_ids": true,
            });
            let choices: Vec<Value> = if stream {
                let events = server.stream(COMPLETIONS, request).await;
                events.into_iter().map(|event| event["choices"][0].clone()).collect()
            } else {
                server.ask(COMPLETIONS, request).await["choices"].as_array().unwrap().clone()
            };
            for index in 0..n {
                let mine = || choices.iter().filter(|choice| choice["index"] == index);
                let values: Vec<Value> = mine()
                    .flat_map(|choice| choice["logprobs"]["token_logprobs"].as_array().unwrap().clone())
                    .collect();
                let prompt_len =
                    mine().find_map(|choice| choice["prompt_token_ids"].as_array()).unwrap().len();
                assert_eq!(values.len(), prompt_len + max_tokens);
                assert!(values[0].is_null() && values[1..].iter().all(Value::is_number), "{values:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn completion_tokens_are_the_tokens_of_the_answer() {
    let server = TestServer::start().await;
    let requests = [
        json!({"prompt": "hello world"}),
        json!({"prompt": "hello world", "n": 3}),
        json!({"prompt": ["hello", "wow"], "n": 2, "max_tokens": 2}),
        json!({"prompt": "hello world", "stop": "wor"}),
        json!({"prompt": "hello world", "stop": "wor", "include_stop_str_in_output": true, "n": 2}),
        json!({"prompt": "hello world", "ignore_eos": true, "max_tokens": 40}),
        json!({"prompt": "\u{1f642}\u{e9}", "echo": true, "logprobs": 1}),
        json!({"prompt": "wow", "stop_token_ids": [86]}),
    ];
    for mut request in requests {
        let shown = request.to_string();
        request["model"] = json!("m");
        request["return_token_ids"] = json!(true);
        let answer = server.ask(COMPLETIONS, request.clone()).await;
        let count = |choice: &Value| choice["token_ids"].as_array().unwrap().len();
        let num_tokens: usize = answer["choices"].as_array().unwrap().iter().map(count).sum();
        assert_eq!(answer["usage"]["completion_tokens"], num_tokens, "{shown}");

        request["stream"] = json!(true);
        request["stream_options"] = json!({"include_usage": true});
        let events = server.stream(COMPLETIONS, request).await;
        let (usage, chunks) = events.split_last().unwrap();
        let num_streamed: usize = chunks.iter().map(|chunk| count(&chunk["choices"][0])).sum();
        assert_eq!((num_streamed, &usage["usage"]), (num_tokens, &answer["usage"]), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_told_by_every_whole_answer_and_in_streams_only_on_demand() {
    let server = TestServer::start().await;
    let messages = json!([{"role": "user", "content": "hello"}]);
    for (path, request) in [
        (COMPLETIONS, json!({"model": "m", "prompt": "hello"})),
        (CHAT, json!({"model": "m", "messages": messages})),
    ] {
        let answer = server.ask(path, request.clone()).await;
        assert_eq!(answer["usage"]["total_tokens"], 3);
        for (options, wanted) in [
            (json!(null), false),
            (json!({}), false),
            (json!({"include_usage": false}), false),
            (json!({"include_usage": true}), true),
        ] {
            let mut request = request.clone();
            request["stream"] = json!(true);
            request["stream_options"] = options.clone();
            let events = server.stream(path, request).await;
            let told: Vec<_> = events.iter().filter(|event| event["usage"].is_object()).collect();
            assert_eq!(told.len(), usize::from(wanted), "{options}");
            assert!(
                told.iter().all(|event| event["usage"] == answer["usage"] && event["choices"] == json!([]))
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn choices_of_one_stream_do_not_overwrite_each_other() {
    let server = TestServer::start().await;
    let request =
        json!({"model": "m", "prompt": ["hello world", "wow"], "n": 3, "stream": true, "logprobs": 0});
    let events = server.stream(COMPLETIONS, request).await;
    for index in 0..6 {
        let mine: Vec<_> = events
            .iter()
            .map(|event| &event["choices"][0])
            .filter(|choice| choice["index"] == index)
            .collect();
        let text: String = mine.iter().map(|choice| choice["text"].as_str().unwrap()).collect();
        assert_eq!(text, if index < 3 { "hello world" } else { "wow" });
        let finishes = mine.iter().filter(|choice| !choice["finish_reason"].is_null()).count();
        assert_eq!(finishes, 1);
    }
}
