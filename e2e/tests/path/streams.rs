//! Chat streams through the gateway, and what became of them.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The longest that any one request here may take.
const REQUEST_WITHIN: Duration = Duration::from_secs(120);

/// What a whole stream said.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) finish_reason: String,
    pub(crate) num_events: usize,
}

/// A stream of exactly `max_tokens` tokens, read to its end: an error event, a missing finish reason or a missing
/// `[DONE]` is an error. `started` turns true with the first text.
pub(crate) async fn chat(
    base: &str,
    model: &str,
    max_tokens: u32,
    started: Option<watch::Sender<bool>>,
) -> Result<Answer> {
    let body = json!({
        "model": model, "stream": true, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": true,
        "messages": [{"role": "user", "content": "Tell a long story about a sailing race."}],
    });
    let client = reqwest::Client::builder().no_proxy().timeout(REQUEST_WITHIN).build()?;
    let response =
        client.post(format!("{base}/chat/completions")).json(&body).send().await.context("no response")?;
    let status = response.status();
    if !status.is_success() {
        bail!("{status}: {}", response.text().await.unwrap_or_default());
    }
    let mut answer = Answer { text: String::new(), finish_reason: String::new(), num_events: 0 };
    let (mut pending, mut done) = (Vec::new(), false);
    let mut bytes = response.bytes_stream();
    while let Some(chunk) = bytes.next().await {
        pending.extend_from_slice(&chunk.context("the stream broke off")?);
        while let Some(end) = pending.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            let Some(data) = line.strip_prefix(b"data: ") else { continue };
            if data.trim_ascii() == b"[DONE]" {
                done = true;
                continue;
            }
            take_event(&mut answer, serde_json::from_slice(data)?)?;
            if let Some(started) = started.as_ref().filter(|_| !answer.text.is_empty()) {
                started.send_replace(true);
            }
        }
    }
    ensure!(done, "the stream ended without [DONE] after {} events", answer.num_events);
    ensure!(!answer.finish_reason.is_empty(), "the stream ended without a finish reason");
    Ok(answer)
}

fn take_event(answer: &mut Answer, event: Value) -> Result<()> {
    ensure!(event.get("error").is_none(), "the stream carried an error: {event}");
    answer.num_events += 1;
    for choice in event["choices"].as_array().into_iter().flatten() {
        answer.text += choice["delta"]["content"].as_str().unwrap_or_default();
        if let Some(reason) = choice["finish_reason"].as_str() {
            reason.clone_into(&mut answer.finish_reason);
        }
    }
    Ok(())
}

/// Streams under way, each past its first text.
pub(crate) async fn start_streams(
    base: &str,
    model: &str,
    count: usize,
    max_tokens: u32,
) -> Vec<JoinHandle<Result<Answer>>> {
    let mut streams = Vec::new();
    let mut first_texts = Vec::new();
    for _ in 0..count {
        let (started, seen) = watch::channel(false);
        let (base, model) = (base.to_owned(), model.to_owned());
        streams.push(tokio::spawn(async move { chat(&base, &model, max_tokens, Some(started)).await }));
        first_texts.push(seen);
    }
    for mut seen in first_texts {
        // A stream that failed drops its sender; its error is reported when it is joined.
        let _ = tokio::time::timeout(REQUEST_WITHIN, seen.wait_for(|started| *started)).await;
    }
    streams
}

/// Joins streams; the first one that was lost is the error.
pub(crate) async fn all_answers(streams: Vec<JoinHandle<Result<Answer>>>) -> Result<Vec<Answer>> {
    let mut answers = Vec::new();
    for (index, stream) in streams.into_iter().enumerate() {
        answers.push(stream.await?.with_context(|| format!("stream {index} was lost"))?);
    }
    Ok(answers)
}
