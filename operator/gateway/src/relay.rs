//! A response on its way to the client: frames pass untouched; an engine that dies is told to the client.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header::CONTENT_TYPE};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Sleep, sleep},
};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::{
    Gateway, InFlight,
    error::envelope,
    metrics::{ByModel, ByModelAndCode, Cause},
};

/// One request as metrics see it; counted when dropped, however it ends.
pub(crate) struct Observed {
    gateway: Gateway,
    model: String,
    started: Instant,
    code: Option<StatusCode>,
    named: bool,
}

/// Widely used for a client that left before it was answered.
const CLIENT_GONE: u16 = 499;

impl Observed {
    pub(crate) fn new(gateway: Gateway) -> Self {
        Self { gateway, model: String::new(), started: Instant::now(), code: None, named: false }
    }

    /// The request asks for a model of the table.
    pub(crate) fn names(&mut self, model: &str) {
        model.clone_into(&mut self.model);
        self.named = true;
        self.gateway.0.metrics.in_flight.get_or_create(&self.by_model()).inc();
    }

    pub(crate) fn answered(&mut self, code: StatusCode) {
        self.code = Some(code);
    }

    fn first_byte(&self) {
        let seconds = self.started.elapsed().as_secs_f64();
        self.gateway.0.metrics.first_byte.get_or_create(&self.by_model()).observe(seconds);
    }

    fn by_model(&self) -> ByModel {
        ByModel { model: self.model.clone() }
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        let code = self.code.map_or(CLIENT_GONE, |c| c.as_u16());
        let metrics = &self.gateway.0.metrics;
        metrics.requests.get_or_create(&ByModelAndCode { model: self.model.clone(), code }).inc();
        if self.named {
            metrics.in_flight.get_or_create(&self.by_model()).dec();
        }
    }
}

/// The response body of an engine. Dropping it, as a client does that leaves, closes the engine's connection.
pub(crate) struct Relay {
    /// Absent once the last frame has passed.
    upstream: Option<Incoming>,
    observed: Observed,
    /// Runs while the engine owes a frame; a client that reads slowly is not the engine's fault.
    silence: Pin<Box<Sleep>>,
    waiting: bool,
    /// Resolves when the gateway can wait no longer.
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    started: bool,
    events: Option<Boundary>,
    _held: (InFlight, OwnedSemaphorePermit),
}

impl Relay {
    pub(crate) fn new(
        upstream: Incoming,
        headers: &HeaderMap,
        observed: Observed,
        held: (InFlight, OwnedSemaphorePermit),
    ) -> Self {
        let is_events =
            headers.get(CONTENT_TYPE).is_some_and(|t| t.as_bytes().starts_with(b"text/event-stream"));
        let silence = Box::pin(sleep(observed.gateway.0.limits.idle_timeout));
        let cut = Box::pin(observed.gateway.0.cutting.clone().cancelled_owned());
        Self {
            upstream: Some(upstream),
            observed,
            silence,
            waiting: false,
            cut,
            started: false,
            events: is_events.then(Boundary::default),
            _held: held,
        }
    }

    fn pass(&mut self, frame: &Frame<Bytes>) {
        self.waiting = false;
        let Some(data) = frame.data_ref() else { return };
        if !self.started {
            self.started = true;
            self.observed.first_byte();
        }
        if let Some(events) = &mut self.events {
            events.advance(data);
        }
    }

    fn is_between_events(&self) -> bool {
        self.events.as_ref().is_some_and(Boundary::is_between)
    }

    /// Between two events the client can still be told; inside one only a broken connection is unambiguous.
    /// `status` is what the answer would have had if it had not begun.
    fn fail(
        &mut self,
        cause: Cause,
        status: StatusCode,
        reason: &str,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        self.upstream = None;
        self.observed.gateway.0.metrics.lost(cause);
        let message = format!("the answer ends early: {reason}");
        if self.is_between_events() {
            Poll::Ready(Some(Ok(Frame::data(last_events(&message, status)))))
        } else {
            Poll::Ready(Some(Err(RelayError(message))))
        }
    }
}

fn last_events(message: &str, status: StatusCode) -> Bytes {
    let error = envelope(message, None, status);
    format!("data: {error}\n\ndata: [DONE]\n\n").into()
}

/// Ends the client's connection without a proper end, so that it cannot take the answer for complete.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct RelayError(String);

impl Body for Relay {
    type Data = Bytes;
    type Error = RelayError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        if self.upstream.is_some() && self.is_between_events() && self.cut.as_mut().poll(cx).is_ready() {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            return self.fail(Cause::Shutdown, status, "the gateway is shutting down");
        }
        let Some(upstream) = &mut self.upstream else { return Poll::Ready(None) };
        match Pin::new(upstream).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.pass(&frame);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                let reason = format!("the replica that was answering failed ({error})");
                self.fail(Cause::Stream, StatusCode::BAD_GATEWAY, &reason)
            }
            Poll::Ready(None) => {
                self.upstream = None;
                Poll::Ready(None)
            }
            Poll::Pending => {
                if !self.waiting {
                    self.waiting = true;
                    let limit = self.observed.gateway.0.limits.idle_timeout;
                    self.silence.as_mut().reset(tokio::time::Instant::now() + limit);
                }
                ready!(self.silence.as_mut().poll(cx));
                let reason = "the replica that was answering fell silent";
                self.fail(Cause::Idle, StatusCode::GATEWAY_TIMEOUT, reason)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.upstream.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.upstream.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let unfinished = self.upstream.as_ref().is_some_and(|u| !u.is_end_stream());
        if unfinished && self.observed.gateway.0.cutting.is_cancelled() {
            self.observed.gateway.0.metrics.lost(Cause::Shutdown);
        }
    }
}

/// Where an event stream stands: events end with an empty line.
#[derive(Debug, Default)]
struct Boundary {
    /// The last bytes seen, at most four.
    tail: Vec<u8>,
}

impl Boundary {
    fn advance(&mut self, data: &[u8]) {
        self.tail.extend_from_slice(&data[data.len().saturating_sub(4)..]);
        let excess = self.tail.len().saturating_sub(4);
        self.tail.drain(..excess);
    }

    fn is_between(&self) -> bool {
        self.tail.is_empty() || self.tail.ends_with(b"\n\n") || self.tail.ends_with(b"\r\n\r\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_ends_with_an_empty_line_however_it_is_cut() {
        let mut boundary = Boundary::default();
        assert!(boundary.is_between());
        boundary.advance(b"data: {}\n");
        assert!(!boundary.is_between());
        boundary.advance(b"\n");
        assert!(boundary.is_between());
        boundary.advance(b"data: x\r\n\r");
        assert!(!boundary.is_between());
        boundary.advance(b"\n");
        assert!(boundary.is_between());
    }
}
