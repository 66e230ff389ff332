use std::collections::BTreeSet;

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::engine::Engine;

/// The reasons with which the choices of a streamed answer end, each once.
fn finish_reasons(text: &str) -> BTreeSet<String> {
    assert!(
        text.ends_with("data: [DONE]\n\n"),
        "the stream is whole: {}",
        &text[text.len().saturating_sub(200)..]
    );
    let events =
        text.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    events.filter_map(|event| event["choices"][0]["finish_reason"].as_str().map(str::to_owned)).collect()
}

#[tokio::test]
async fn a_stream_in_flight_is_finished_before_the_process_ends() {
    let engine = Engine::start(&["--shutdown-timeout", "60"]);
    let stream = engine.begin_long_stream(16).await;
    engine.signal("TERM");
    assert_eq!(finish_reasons(&stream.text().await.unwrap()), BTreeSet::from(["length".to_owned()]));
    assert_eq!(engine.wait_for_end().await.code(), Some(0));
}

#[tokio::test]
async fn what_is_left_at_the_deadline_is_aborted_with_a_whole_stream() {
    let engine = Engine::start(&["--shutdown-timeout", "0"]);
    let stream = engine.begin_long_stream(128).await;
    engine.signal("TERM");
    assert!(finish_reasons(&stream.text().await.unwrap()).contains("abort"));
    assert_eq!(engine.wait_for_end().await.code(), Some(0));
}

#[tokio::test]
async fn a_body_that_is_half_sent_delays_no_end() {
    let engine = Engine::start(&["--shutdown-timeout", "600"]);
    let mut half = TcpStream::connect(engine.url.strip_prefix("http://").unwrap()).await.unwrap();
    let head = "POST /v1/completions HTTP/1.1\r\nhost: e\r\ncontent-type: application/json\r\n\
                content-length: 100\r\nexpect: 100-continue\r\n\r\n";
    half.write_all(head.as_bytes()).await.unwrap();
    // Told to go on: the body is being read.
    let mut told = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    half.read_exact(&mut told).await.unwrap();
    assert!(told.starts_with(b"HTTP/1.1 100"));
    half.write_all(b"{").await.unwrap();
    engine.signal("TERM");
    let mut answer = String::new();
    half.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("x-regatta-draining: true"), "{answer}");
    assert_eq!(engine.wait_for_end().await.code(), Some(0));
}

#[tokio::test]
async fn a_second_signal_ends_the_process_at_once() {
    let engine = Engine::start(&["--shutdown-timeout", "600"]);
    let stream = engine.begin_long_stream(128).await;
    engine.signal("TERM");
    engine.wait_for_readyz(503).await;
    engine.signal("INT");
    assert_eq!(engine.wait_for_end().await.code(), Some(1));
    drop(stream);
}

#[tokio::test]
async fn the_pods_annotation_drains_and_undrains() {
    let volume = tempfile::tempdir().unwrap();
    let publish = |version: &str, annotations: &str| {
        // As the kubelet does: a new folder, then a link to it in one move.
        let folder = volume.path().join(version);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("annotations"), annotations).unwrap();
        std::os::unix::fs::symlink(version, volume.path().join("..data_tmp")).unwrap();
        std::fs::rename(volume.path().join("..data_tmp"), volume.path().join("..data")).unwrap();
    };
    publish("1", "other=\"value\"\n");
    std::os::unix::fs::symlink("..data/annotations", volume.path().join("annotations")).unwrap();
    let engine = Engine::start(&["--pod-info", volume.path().to_str().unwrap()]);
    engine.wait_for_readyz(200).await;
    publish("2", "other=\"value\"\nregatta.dev/draining=\"2026-01-01T00:00:00Z\"\n");
    engine.wait_for_readyz(503).await;
    publish("3", "other=\"value\"\n");
    engine.wait_for_readyz(200).await;
    engine.signal("TERM");
    assert_eq!(engine.wait_for_end().await.code(), Some(0));
}
