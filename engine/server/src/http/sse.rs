//! Server-sent events, one JSON document each.

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{HeaderValue, header};
use serde::Serialize;

use super::ApiError;

/// The last event of every stream.
const DONE: &[u8] = b"data: [DONE]\n\n";

/// One event.
pub(crate) fn event(data: &impl Serialize) -> Bytes {
    let mut frame = b"data: ".to_vec();
    serde_json::to_writer(&mut frame, data).expect("our own types serialise");
    frame.extend_from_slice(b"\n\n");
    frame.into()
}

/// A stream of events as a response. An error becomes an event, too; `[DONE]` follows in any case.
pub(crate) fn response(events: impl Stream<Item = Result<Bytes, ApiError>> + Send + 'static) -> Response {
    let frames = events
        .map(|item| item.unwrap_or_else(|error| event(&error.body())))
        .chain(futures::stream::once(async { Bytes::from_static(DONE) }))
        .map(Ok::<_, std::convert::Infallible>);
    let mut response = Response::new(Body::from_stream(frames));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
