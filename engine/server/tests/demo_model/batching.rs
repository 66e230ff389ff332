//! What a request gets does not depend on the others.

use serde_json::{Value, json};

use crate::process::{EngineProcess, MODEL};
use crate::reference;

const NUM_REQUESTS: usize = 32;

/// A request and where it goes.
struct Request {
    path: &'static str,
    body: Value,
}

/// Requests of mixed kinds: short and long, text, token ids and chats, greedy, sampled and searched, streamed and whole,
/// one choice and several, with and without penalties, cuts and log-probabilities.
fn requests() -> Vec<Request> {
    let prompts = reference::prompts();
    let all_ids: Vec<u32> =
        prompts.iter().flat_map(|prompt| [&prompt.prompt_ids[..], &prompt.output_ids].concat()).collect();
    let temperatures = [0.0, 0.8, 1.3];
    let request = |i: usize| {
        let mut body = json!({
            "model": MODEL,
            "max_tokens": 1 + (i * 13) % 64,
            "seed": i,
            "temperature": temperatures[i / 3 % 3],
            "stream": i % 4 == 1,
            "ignore_eos": i.is_multiple_of(2),
        });
        let prompt = &prompts[i % prompts.len()];
        let path = match (i % 3, &prompt.messages) {
            (0, _) => {
                body["prompt"] = json!(all_ids[i..i + 1 + (i * i) % 400]);
                body["logprobs"] = json!(i % 4);
                "/v1/completions"
            }
            (_, Some(messages)) => {
                body["messages"] = messages.clone();
                body["logprobs"] = json!(true);
                body["top_logprobs"] = json!(i % 5);
                "/v1/chat/completions"
            }
            (_, None) => {
                body["prompt"] = json!(prompt.text);
                body["n"] = json!(1 + i % 3);
                if i % 5 == 4 {
                    body["use_beam_search"] = json!(true);
                    body["seed"] = json!(null);
                    body["max_tokens"] = json!(10);
                } else {
                    body["top_p"] = json!(0.9);
                }
                "/v1/completions"
            }
        };
        let searches = body["use_beam_search"] == true;
        if body["n"].as_u64() > Some(1) && !searches {
            // Several greedy choices would be the same, and are refused.
            body["temperature"] = json!(0.8);
        }
        if i % 4 == 2 && !searches {
            body["frequency_penalty"] = json!(0.4);
            body["repetition_penalty"] = json!(1.1);
            body["min_p"] = json!(0.02);
            body["bad_words"] = json!(["the", "and"]);
            body["min_tokens"] = json!(1);
        }
        Request { path, body }
    };
    (0..NUM_REQUESTS).map(request).collect()
}

/// The answer's content, without what differs from request to request (ids, times) and how a stream was cut.
async fn answer(engine: &EngineProcess, request: &Request) -> Vec<Value> {
    if request.body["stream"] == true {
        let events = engine.stream(request.path, &request.body).await;
        return joined(&events);
    }
    engine.ask(request.path, &request.body).await["choices"].as_array().unwrap().clone()
}

/// Events of a stream put together by choice: text, log-probabilities and reason.
fn joined(events: &[Value]) -> Vec<Value> {
    let mut choices: Vec<Value> = Vec::new();
    for choice in events.iter().flat_map(|event| event["choices"].as_array().unwrap()) {
        let index = choice["index"].as_u64().unwrap() as usize;
        if choices.len() <= index {
            choices.resize(index + 1, json!({"text": "", "logprobs": [], "finish_reason": null}));
        }
        let whole = &mut choices[index];
        let piece =
            choice["text"].as_str().or_else(|| choice["delta"]["content"].as_str()).unwrap_or_default();
        whole["text"] = json!(whole["text"].as_str().unwrap().to_owned() + piece);
        let tokens = &choice["logprobs"];
        for list in
            [&tokens["content"], &tokens["tokens"], &tokens["token_logprobs"], &tokens["top_logprobs"]]
        {
            let known = whole["logprobs"].as_array_mut().unwrap();
            known.extend(list.as_array().into_iter().flatten().cloned());
        }
        if !choice["finish_reason"].is_null() {
            whole["finish_reason"] = choice["finish_reason"].clone();
        }
    }
    choices
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_two_requests_at_once_get_what_each_gets_alone() {
    let requests = requests();
    let roomy = EngineProcess::start(&["--max-model-len", "1024", "--num-gpu-blocks-override", "1024"], &[]);
    let mut alone = Vec::new();
    for request in &requests {
        alone.push(answer(&roomy, request).await);
    }
    // The smallest pool that one sequence of this length fits: few requests run at once, and blocks change hands.
    let tight = EngineProcess::start(&["--max-model-len", "512", "--num-gpu-blocks-override", "32"], &[]);
    for engine in [&roomy, &tight] {
        let together =
            futures::future::join_all(requests.iter().map(|request| answer(engine, request))).await;
        for (i, (alone, together)) in alone.iter().zip(&together).enumerate() {
            assert_eq!(alone, together, "request {i}: {}", requests[i].body);
        }
        engine.wait_until_idle().await;
    }
}
