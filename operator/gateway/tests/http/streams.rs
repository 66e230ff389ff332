//! Streams: many at once, slow and leaving clients, engines that die, retries, drain.

use std::{sync::atomic::Ordering, time::Duration};

use crate::support::{Behaviour, ask, engine, eventually, front, front_with, held, piece, whole};
use bytes::Bytes;
use futures::future::join_all;
use http::StatusCode;
use regatta_gateway::Limits;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// `type` and `code` of the error event that ends a stream.
fn last_error(events: &[u8]) -> Value {
    let text = std::str::from_utf8(events).expect("UTF-8");
    let event = text.strip_suffix("\n\ndata: [DONE]\n\n").expect("an end after the error");
    let event: Value = serde_json::from_str(event.strip_prefix("data: ").expect("an event")).expect("JSON");
    json!({"type": event["error"]["type"], "code": event["error"]["code"]})
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_streams_arrive_whole_and_are_shared_by_all_engines() {
    let engines = [engine(Behaviour::Events(50)).await, engine(Behaviour::Events(50)).await];
    let front = front(&engines.each_ref().map(|e| e.address), Limits::default()).await;
    let expected: String = (0..50).map(|i| format!("data: {i}\n\n")).collect();
    let answers = join_all((0..200).map(|_| async { whole(front.post(&ask()).await).await.2 })).await;
    assert!(answers.iter().all(|body| body == expected.as_bytes()));
    assert!(engines.iter().all(|e| e.seen.load(Ordering::SeqCst) > 50));
    eventually("all are counted", || {
        front.metric(r#"regatta_gateway_requests_total{model="m",code="200"}"#).as_deref() == Some("200")
            && front.metric(r#"regatta_gateway_requests_in_flight{model="m"}"#).as_deref() == Some("0")
    })
    .await;
}

#[tokio::test]
async fn each_piece_passes_before_the_next_is_made() {
    let (sender, behaviour) = held();
    let engine = engine(behaviour).await;
    let front = front(&[engine.address], Limits::default()).await;
    sender.send(Bytes::from("data: 0\n\n")).await.expect("open");
    let mut body = front.post(&ask()).await.into_body();
    for i in 0..10 {
        assert_eq!(piece(&mut body).await.expect("open").expect("data"), format!("data: {i}\n\n"));
        sender.send(Bytes::from(format!("data: {}\n\n", i + 1))).await.expect("open");
    }
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_work_of_the_engine() {
    let (sender, behaviour) = held();
    let engine = engine(behaviour).await;
    let front = front(&[engine.address], Limits::default()).await;
    sender.send(Bytes::from("data: 0\n\n")).await.expect("open");
    let mut body = front.post(&ask()).await.into_body();
    piece(&mut body).await.expect("open").expect("data");
    drop(body);
    eventually("the engine's stream is dropped", || sender.is_closed()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_holds_up_nobody_else() {
    let big = "x".repeat(1 << 16);
    let (sender, behaviour) = held();
    let slow = engine(behaviour).await;
    let front = front(&[slow.address], Limits::default()).await;
    let mut stalled = front.post(&ask()).await.into_body();
    let feeding = tokio::spawn(async move {
        let mut sent = 0;
        while sent < 400 && sender.send(Bytes::from(format!("data: {big}\n\n"))).await.is_ok() {
            sent += 1;
        }
        sent
    });
    let quick = engine(Behaviour::Events(5)).await;
    front.route(&[quick.address]);
    assert_eq!(whole(front.post(&ask()).await).await.0, StatusCode::OK);
    let mut read = 0;
    while let Some(data) = piece(&mut stalled).await {
        read += data.expect("data").len();
    }
    let sent = feeding.await.expect("fed");
    assert_eq!((sent, read), (400, 400 * ((1 << 16) + 8)));
}

#[tokio::test]
async fn an_engine_that_dies_between_events_is_told_in_the_stream() {
    let (sender, behaviour) = held();
    let engine = engine(behaviour).await;
    let front = front(&[engine.address], Limits::default()).await;
    sender.send(Bytes::from("data: 0\n\n")).await.expect("open");
    let mut body = front.post(&ask()).await.into_body();
    assert_eq!(piece(&mut body).await.expect("open").expect("data"), "data: 0\n\n");
    engine.kill.cancel();
    let last = piece(&mut body).await.expect("open").expect("an event");
    assert_eq!(last_error(&last), json!({"type": "BadGatewayError", "code": 502}));
    assert!(piece(&mut body).await.is_none());
    assert_eq!(front.metric(r#"regatta_gateway_lost_requests_total{cause="Stream"}"#).as_deref(), Some("1"));
}

#[tokio::test]
async fn an_engine_that_dies_inside_an_event_breaks_the_connection() {
    let (sender, behaviour) = held();
    let engine = engine(behaviour).await;
    let front = front(&[engine.address], Limits::default()).await;
    sender.send(Bytes::from("data: {\"hal")).await.expect("open");
    let mut body = front.post(&ask()).await.into_body();
    piece(&mut body).await.expect("open").expect("data");
    engine.kill.cancel();
    assert!(piece(&mut body).await.is_some_and(|p| p.is_err()));
}

#[tokio::test]
async fn a_silent_engine_is_given_up() {
    let (sender, behaviour) = held();
    let engine = engine(behaviour).await;
    let limits = Limits { idle_timeout: Duration::from_millis(200), ..Limits::default() };
    let front = front(&[engine.address], limits).await;
    let (_, _, body) = whole(front.post(&ask()).await).await;
    assert!(String::from_utf8_lossy(&body).contains("fell silent"));
    assert_eq!(last_error(&body), json!({"type": "GatewayTimeoutError", "code": 504}));
    eventually("the engine's stream is dropped", || sender.is_closed()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_gives_its_place_back() {
    let (sender, behaviour) = held();
    let engine = engine(behaviour).await;
    let limits = Limits { write_timeout: Duration::from_millis(200), ..Limits::default() };
    let front = front(&[engine.address], limits).await;
    let unread = front.post(&ask()).await;
    let big = Bytes::from(vec![b'x'; 1 << 16]);
    // Ends once the stream is dropped, which is the point.
    while sender.send(big.clone()).await.is_ok() {}
    drop(unread);
}

#[tokio::test]
async fn a_pod_that_refuses_connections_is_passed_over() {
    let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("bound");
    let engine = engine(Behaviour::Events(1)).await;
    let front = front(&[gone, engine.address], Limits::default()).await;
    for _ in 0..4 {
        assert_eq!(whole(front.post(&ask()).await).await.0, StatusCode::OK);
    }
    assert_eq!(engine.seen.load(Ordering::SeqCst), 4);
    assert!(front.metric(r#"regatta_gateway_retries_total{cause="Connect"}"#).is_some());
}

#[tokio::test]
async fn a_draining_pod_hands_its_request_to_another() {
    let draining = engine(Behaviour::Draining).await;
    let engine = engine(Behaviour::Events(1)).await;
    let front = front(&[draining.address, engine.address], Limits::default()).await;
    for _ in 0..4 {
        assert_eq!(whole(front.post(&ask()).await).await.0, StatusCode::OK);
    }
    assert!(draining.seen.load(Ordering::SeqCst) > 0);
}

#[tokio::test]
async fn a_pod_that_closes_before_it_answers_is_tried_once_more_elsewhere() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let closing = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut head = [0; 16];
            let _ = stream.readable().await;
            let _ = stream.try_read(&mut head);
        }
    });
    let engine = engine(Behaviour::Events(1)).await;
    let front = front(&[closing, engine.address], Limits::default()).await;
    for _ in 0..4 {
        assert_eq!(whole(front.post(&ask()).await).await.0, StatusCode::OK);
    }
    assert!(front.metric(r#"regatta_gateway_retries_total{cause="Reset"}"#).is_some());
    front.route(&[closing]);
    assert_eq!(whole(front.post(&ask()).await).await.0, StatusCode::BAD_GATEWAY);
}

#[tokio::test]
async fn a_request_goes_to_the_engine_with_the_fewest_in_flight() {
    let (sender, behaviour) = held();
    let busy = engine(behaviour).await;
    let front = front(&[busy.address], Limits::default()).await;
    let held = front.post(&ask()).await;
    let idle = engine(Behaviour::Events(1)).await;
    front.route(&[busy.address, idle.address]);
    for _ in 0..5 {
        assert_eq!(whole(front.post(&ask()).await).await.0, StatusCode::OK);
    }
    assert_eq!(idle.seen.load(Ordering::SeqCst), 5);
    drop(sender);
    whole(held).await;
}

#[tokio::test]
async fn a_pod_that_left_the_table_finishes_its_stream() {
    let (sender, behaviour) = held();
    let old = engine(behaviour).await;
    let front = front(&[old.address], Limits::default()).await;
    sender.send(Bytes::from("data: 0\n\n")).await.expect("open");
    let answer = front.post(&ask()).await;
    front.route(&[]);
    sender.send(Bytes::from("data: 1\n\n")).await.expect("open");
    drop(sender);
    assert_eq!(whole(answer).await.2, "data: 0\n\ndata: 1\n\n");
}

#[tokio::test]
async fn shutdown_lets_streams_end_and_takes_no_new_client() {
    let (sender, behaviour) = held();
    let engine = engine(behaviour).await;
    let front = front(&[engine.address], Limits::default()).await;
    assert!(front.gateway.is_ready());
    sender.send(Bytes::from("data: 0\n\n")).await.expect("open");
    let answer = front.post(&ask()).await;
    front.shutdown.cancel();
    eventually("it says that it ends", || !front.gateway.is_ready()).await;
    let address = front.address;
    eventually("new clients are refused", || std::net::TcpStream::connect(address).is_err()).await;
    assert!(!front.server.is_finished());
    sender.send(Bytes::from("data: 1\n\n")).await.expect("open");
    drop(sender);
    assert_eq!(whole(answer).await.2, "data: 0\n\ndata: 1\n\n");
    front.server.await.expect("ended");
}

#[tokio::test]
async fn an_answer_that_outlasts_the_drain_ends_with_an_error_event() {
    let (sender, behaviour) = held();
    let engine = engine(behaviour).await;
    let front = front_with(&[engine.address], Limits::default(), Duration::ZERO).await;
    sender.send(Bytes::from("data: 0\n\n")).await.expect("open");
    let mut body = front.post(&ask()).await.into_body();
    piece(&mut body).await.expect("open").expect("data");
    front.shutdown.cancel();
    let last = piece(&mut body).await.expect("open").expect("an event");
    assert!(String::from_utf8_lossy(&last).contains("shutting down"));
    assert_eq!(last_error(&last), json!({"type": "ServiceUnavailableError", "code": 503}));
    assert!(piece(&mut body).await.is_none());
    front.server.await.expect("ended");
    let lost = r#"regatta_gateway_lost_requests_total{cause="Shutdown"}"#;
    assert_eq!(front.gateway.metrics().lines().find_map(|l| l.strip_prefix(lost)), Some(" 1"));
}

#[tokio::test]
async fn a_request_that_is_not_answered_when_the_drain_is_over_gets_an_error() {
    let engine = engine(Behaviour::Events(1)).await;
    let limits = Limits { max_requests: 1, ..Limits::default() };
    let front = front_with(&[engine.address], limits, Duration::ZERO).await;
    let mut half = tokio::net::TcpStream::connect(front.address).await.expect("connected");
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ncontent-length: 100\r\n\r\n{";
    half.write_all(head.as_bytes()).await.expect("sent");
    // There is room for one request: once others are turned away, this one is being read.
    while whole(front.post(&ask()).await).await.0 != StatusCode::SERVICE_UNAVAILABLE {}
    front.shutdown.cancel();
    let mut answer = String::new();
    half.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("shutting down"), "{answer}");
    front.server.await.expect("ended");
}
