use serde_json::{Value, json};

use crate::{harness::TestServer, vocabulary::EOS};

const PATH: &str = "/v1/completions";

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_has_text_usage_and_a_reason() {
    let server = TestServer::start().await;
    let answer = server.ask(PATH, json!({"model": "m", "prompt": "hello world"})).await;
    assert!(answer["id"].as_str().unwrap().starts_with("cmpl-"));
    assert_eq!(answer["object"], "text_completion");
    assert_eq!(answer["model"], "m");
    let choice = json!({"index": 0, "text": "hello world", "logprobs": null, "finish_reason": "stop", "stop_reason": null});
    assert_eq!(answer["choices"], json!([choice]));
    assert_eq!(answer["usage"], json!({"prompt_tokens": 4, "completion_tokens": 5, "total_tokens": 9}));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_tokens_ends_with_length() {
    let server = TestServer::start().await;
    let answer = server.ask(PATH, json!({"model": "m", "prompt": "hello world", "max_tokens": 2})).await;
    assert_eq!(answer["choices"][0]["text"], "hello wor");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_joins_to_the_whole_answer_and_tells_the_usage_last() {
    let server = TestServer::start().await;
    let request = json!({"model": "m", "prompt": "hello world", "stream": true, "stream_options": {"include_usage": true}});
    let events = server.stream(PATH, request).await;
    let (usage, chunks) = events.split_last().unwrap();
    let text: String = chunks.iter().map(|chunk| chunk["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(text, "hello world");
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "stop");
    assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()));
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["completion_tokens"], 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_stream_options_ask_for_no_usage() {
    let server = TestServer::start().await;
    let request = json!({"model": "m", "prompt": "hello", "stream": true, "stream_options": {}});
    let events = server.stream(PATH, request).await;
    assert!(events.iter().all(|event| event.get("usage").is_none() && event["choices"][0].is_object()));
}

#[tokio::test(flavor = "multi_thread")]
async fn continuous_usage_grows_with_every_event() {
    let server = TestServer::start().await;
    let options = json!({"include_usage": true, "continuous_usage_stats": true});
    let request = json!({"model": "m", "prompt": "hello world", "stream": true, "stream_options": options});
    let events = server.stream(PATH, request).await;
    let counts: Vec<_> =
        events.iter().map(|event| event["usage"]["completion_tokens"].as_u64().unwrap()).collect();
    assert_eq!(counts, [1, 2, 3, 4, 5, 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_string_ends_the_text_before_it_and_frees_the_blocks() {
    let server = TestServer::start().await;
    let request = json!({"model": "m", "prompt": "hello world", "stop": ["orl"], "ignore_eos": true, "max_tokens": 200});
    let answer = server.ask(PATH, request).await;
    assert_eq!(answer["choices"][0]["text"], "hello w");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(answer["choices"][0]["stop_reason"], "orl");
    server.wait_for(|page| page["kv"]["in_use"] == 0 && page["in_flight"] == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_string_is_kept_when_asked_for() {
    let server = TestServer::start().await;
    let request =
        json!({"model": "m", "prompt": "hello world", "stop": "wor", "include_stop_str_in_output": true});
    let answer = server.ask(PATH, request).await;
    assert_eq!(answer["choices"][0]["text"], "hello wor");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_token_is_named_and_leaves_no_text() {
    let server = TestServer::start().await;
    // The echoing model ends with its first stop token: the smallest id.
    let request = json!({"model": "m", "prompt": "hello", "stop_token_ids": [65]});
    let answer = server.ask(PATH, request).await;
    assert_eq!(answer["choices"][0]["text"], "hello");
    assert_eq!(answer["choices"][0]["stop_reason"], 65);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_prompt_and_every_choice_has_its_place() {
    let server = TestServer::start().await;
    let answer = server.ask(PATH, json!({"model": "m", "prompt": ["hello", "wow"], "n": 2})).await;
    let texts: Vec<_> =
        answer["choices"].as_array().unwrap().iter().map(|choice| choice["text"].clone()).collect();
    assert_eq!(texts, ["hello", "hello", "wow", "wow"]);
    let places: Vec<_> =
        answer["choices"].as_array().unwrap().iter().map(|choice| choice["index"].clone()).collect();
    assert_eq!(places, [0, 1, 2, 3]);
    // Each prompt counts once: 1 + 3 tokens; each choice has its tokens and an end.
    assert_eq!(answer["usage"], json!({"prompt_tokens": 4, "completion_tokens": 12, "total_tokens": 16}));
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_may_be_token_ids() {
    let server = TestServer::start().await;
    let ids = [[39_u32, 40], [41, 42]];
    let answer = server.ask(PATH, json!({"model": "m", "prompt": ids, "return_token_ids": true})).await;
    for (choice, prompt) in answer["choices"].as_array().unwrap().iter().zip(ids) {
        assert_eq!(choice["prompt_token_ids"], json!(prompt));
        assert_eq!(choice["token_ids"], json!([prompt[0], prompt[1], EOS]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_echo_has_the_prompts_log_probabilities_too() {
    let server = TestServer::start().await;
    let request =
        json!({"model": "m", "prompt": "hello world", "echo": true, "logprobs": 2, "max_tokens": 2});
    let answer = server.ask(PATH, request).await;
    let choice = &answer["choices"][0];
    assert_eq!(choice["text"], "hello worldhello wor");
    let logprobs = &choice["logprobs"];
    assert_eq!(logprobs["tokens"], json!(["hello", " wor", "l", "d", "hello", " wor"]));
    assert_eq!(logprobs["text_offset"], json!([0, 5, 9, 10, 11, 16]));
    let values = logprobs["token_logprobs"].as_array().unwrap();
    assert!(values[0].is_null() && values[1..].iter().all(Value::is_number));
    let top = logprobs["top_logprobs"].as_array().unwrap();
    assert!(top[0].is_null() && top[1..].iter().all(|top| top.as_object().unwrap().len() == 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_can_be_scored_without_generating() {
    let server = TestServer::start().await;
    let request = json!({"model": "m", "prompt": "hello", "echo": true, "logprobs": 0, "max_tokens": 0});
    let answer = server.ask(PATH, request).await;
    assert_eq!(answer["choices"][0]["text"], "hello");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["choices"][0]["logprobs"]["tokens"], json!(["hello"]));
    assert_eq!(answer["usage"]["completion_tokens"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn log_probabilities_come_with_every_streamed_token() {
    let server = TestServer::start().await;
    let request = json!({
        "model": "m", "prompt": "wow", "stream": true, "logprobs": 1, "return_tokens_as_token_ids": true, "echo": true,
    });
    let events = server.stream(PATH, request.clone()).await;
    let tokens: Vec<Value> = events
        .iter()
        .flat_map(|event| event["choices"][0]["logprobs"]["tokens"].as_array().unwrap().clone())
        .collect();
    let mut whole = request;
    whole["stream"] = json!(false);
    let answer = server.ask(PATH, whole).await;
    assert_eq!(json!(tokens), answer["choices"][0]["logprobs"]["tokens"]);
    assert_eq!(tokens.last(), Some(&json!(format!("token_id:{EOS}"))));
    assert_eq!(tokens.len(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn characters_of_several_tokens_are_streamed_whole() {
    let server = TestServer::start().await;
    let request = json!({"model": "m", "prompt": "\u{1f642}\u{e9}", "stream": true});
    let events = server.stream(PATH, request).await;
    let texts: Vec<_> = events.iter().map(|event| event["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["\u{1f642}", "\u{e9}", ""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_probabilities_of_a_prompt_come_by_token_id_and_the_first_is_null() {
    let server = TestServer::start().await;
    let request = json!({"model": "m", "prompt": [39, 40, 41], "prompt_logprobs": 2, "max_tokens": 1});
    let answer = server.ask(PATH, request).await;
    let logprobs = answer["choices"][0]["prompt_logprobs"].as_array().unwrap();
    assert_eq!(logprobs.len(), 3);
    assert!(logprobs[0].is_null());
    for (entry, id) in logprobs[1..].iter().zip([40, 41]) {
        assert_eq!(entry.as_object().unwrap().len(), 2);
        let own = &entry[id.to_string()];
        assert!(own["logprob"].is_number() && own["rank"] == 1 && own["decoded_token"].is_string(), "{own}");
    }
    assert!(answer["choices"][0]["logprobs"].is_null());
    let request = json!({"model": "m", "prompt": [39], "prompt_logprobs": 0, "max_tokens": 1});
    let answer = server.ask(PATH, request).await;
    assert_eq!(answer["choices"][0]["prompt_logprobs"], json!([null]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_echo_and_the_prompts_log_probabilities_keep_their_own_numbers_of_alternatives() {
    let server = TestServer::start().await;
    let request = json!({"model": "m", "prompt": [39, 40], "echo": true, "logprobs": 1, "prompt_logprobs": 3, "max_tokens": 1});
    let choice = &server.ask(PATH, request).await["choices"][0];
    assert_eq!(choice["prompt_logprobs"][1].as_object().unwrap().len(), 3);
    assert_eq!(choice["logprobs"]["top_logprobs"][1].as_object().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_more_samples_the_best_are_answered_and_counted() {
    let server = TestServer::start().await;
    let request = json!({"model": "m", "prompt": ["hello", "wow"], "n": 2, "best_of": 4});
    let answer = server.ask(PATH, request).await;
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.iter().map(|choice| choice["index"].clone()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    let texts: Vec<_> = choices.iter().map(|choice| choice["text"].clone()).collect();
    assert_eq!(texts, ["hello", "hello", "wow", "wow"]);
    assert!(choices.iter().all(|choice| choice["logprobs"].is_null()), "they were not asked for");
    assert_eq!(answer["usage"], json!({"prompt_tokens": 4, "completion_tokens": 12, "total_tokens": 16}));
    server.wait_for(|page| page["in_flight"] == 0 && page["kv"]["in_use"] == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_string_counts_only_after_the_least_number_of_tokens() {
    let server = TestServer::start().await;
    let request = |min_tokens: u32| json!({"model": "m", "prompt": "hello hello", "stop": "ll", "min_tokens": min_tokens});
    // "hello" is the first token, and the one after the space's is the third.
    for (min_tokens, text) in [(0, "he"), (1, "hello he"), (2, "hello he")] {
        let answer = server.ask(PATH, request(min_tokens)).await;
        assert_eq!(answer["choices"][0]["text"], text, "{min_tokens}");
        assert_eq!(answer["choices"][0]["stop_reason"], "ll");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn special_tokens_are_text_only_when_asked_for() {
    let server = TestServer::start().await;
    for (skip, text) in [(true, ""), (false, "<pad>")] {
        let request =
            json!({"model": "m", "prompt": [EOS - 1], "skip_special_tokens": skip, "max_tokens": 1});
        assert_eq!(server.ask(PATH, request).await["choices"][0]["text"], text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_beam_search_answers_with_its_beams_whole_or_streamed() {
    let server = TestServer::start().await;
    let request = json!({"model": "m", "prompt": "hello world", "use_beam_search": true, "n": 3, "max_tokens": 6, "temperature": 0, "logprobs": 1});
    let answer = server.ask(PATH, request.clone()).await;
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 3);
    let tokens = |choice: &Value| choice["logprobs"]["tokens"].clone();
    assert!(tokens(&choices[0]) != tokens(&choices[1]) && tokens(&choices[1]) != tokens(&choices[2]));
    let num_tokens: usize = choices.iter().map(|choice| tokens(choice).as_array().unwrap().len()).sum();
    assert_eq!(answer["usage"]["completion_tokens"], num_tokens);
    let mut streamed = request;
    streamed["stream"] = json!(true);
    let events = server.stream(PATH, streamed).await;
    for choice in choices {
        let mine = events.iter().map(|event| &event["choices"][0]).filter(|c| c["index"] == choice["index"]);
        let text: String = mine.map(|choice| choice["text"].as_str().unwrap()).collect();
        assert_eq!(choice["text"], text);
    }
    server.wait_for(|page| page["in_flight"] == 0 && page["kv"]["in_use"] == 0).await;
}
