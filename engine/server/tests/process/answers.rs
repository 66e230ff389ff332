use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::engine::Engine;

/// The digits of every number below zero; of what an answer holds, only log-probabilities are.
fn negatives(text: &str) -> BTreeSet<String> {
    let digits = |rest: &str| rest.chars().take_while(|c| "-.e0123456789".contains(*c)).collect::<String>();
    text.split([':', ',', '[']).filter(|part| part.starts_with('-')).map(digits).collect()
}

#[tokio::test]
async fn a_log_probability_reads_the_same_streamed_and_whole() {
    let engine = Engine::start(&[]);
    let ask = async |body: &Value| {
        let request = engine.client.post(format!("{}/v1/completions", engine.url)).json(body);
        request.send().await.unwrap().text().await.unwrap()
    };
    let mut body =
        json!({"prompt": [7, 8, 9], "temperature": 0, "max_tokens": 8, "logprobs": 3, "ignore_eos": true});
    let whole = negatives(&ask(&body).await);
    body["stream"] = json!(true);
    assert!(whole.len() > 16, "{whole:?}");
    assert_eq!(whole, negatives(&ask(&body).await));
}
