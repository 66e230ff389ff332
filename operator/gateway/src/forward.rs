//! One request's way to an engine, over as many attempts as may be made before its first byte.

use std::sync::atomic::Ordering;

use axum::{body::Body, extract::State, response::IntoResponse};
use http::{HeaderValue, Method, Request, Response, StatusCode, uri::PathAndQuery};
use hyper::body::Incoming;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout_at},
};
use tracing::debug;

use crate::{
    Gateway, InFlight, body,
    error::ApiError,
    headers,
    metrics::{ByCause, Cause},
    relay::{Observed, Relay},
    upstream::{Failure, Outgoing},
};

/// A request that resets one engine may be the reason for the reset; a second try is enough.
const MAX_RESETS: usize = 2;

/// Everything that is not `/v1/models`.
pub(crate) async fn handle(State(gateway): State<Gateway>, request: Request<Body>) -> Response<Body> {
    let id = headers::request_id(request.headers());
    let mut observed = Observed::new(gateway.clone());
    let outcome = tokio::select! {
        outcome = forward(&gateway, request, &id, &mut observed) => outcome,
        () = gateway.0.cutting.cancelled() => Err(shutting_down(&gateway)),
    };
    let mut response = match outcome {
        Ok(Answer { response, in_flight, slot }) => {
            observed.answered(response.status());
            let (mut parts, incoming) = response.into_parts();
            headers::strip_hop_by_hop(&mut parts.headers);
            let relay = Relay::new(incoming, &parts.headers, observed, (in_flight, slot));
            Response::from_parts(parts, Body::new(relay))
        }
        Err(error) => {
            let response = error.into_response();
            observed.answered(response.status());
            response
        }
    };
    response.headers_mut().insert(headers::REQUEST_ID, id);
    response
}

struct Answer {
    response: Response<Incoming>,
    in_flight: InFlight,
    slot: OwnedSemaphorePermit,
}

async fn forward(
    gateway: &Gateway,
    request: Request<Body>,
    id: &HeaderValue,
    observed: &mut Observed,
) -> Result<Answer, ApiError> {
    let shared = &gateway.0;
    let (parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    if parts.method != Method::POST || !path.path().starts_with("/v1/") {
        return Err(ApiError::UnknownPath { method: parts.method, path: path.path().to_owned() });
    }
    let slot = shared.slots.clone().try_acquire_owned().map_err(|_| overloaded(gateway))?;
    let buffered = body::read(body, &shared.limits, &shared.bodies).await?;
    let name = body::model(&buffered.bytes)?;
    {
        let table = shared.table.load();
        table.get(&name).ok_or_else(|| ApiError::unknown_model(&name, &table))?;
    }
    observed.names(&name);
    let outgoing = Outgoing {
        method: parts.method,
        path,
        headers: headers::for_upstream(parts.headers, id),
        body: buffered.bytes.clone(),
    };
    let (response, in_flight) = attempts(gateway, &name, &outgoing).await?;
    Ok(Answer { response, in_flight, slot })
}

fn shutting_down(gateway: &Gateway) -> ApiError {
    gateway.0.metrics.lost(Cause::Shutdown);
    ApiError::ShuttingDown
}

fn overloaded(gateway: &Gateway) -> ApiError {
    gateway.0.metrics.lost(Cause::Overload);
    ApiError::Overloaded
}

async fn attempts(
    gateway: &Gateway,
    name: &str,
    outgoing: &Outgoing,
) -> Result<(Response<Incoming>, InFlight), ApiError> {
    let shared = &gateway.0;
    let deadline = Instant::now() + shared.limits.response_timeout;
    shared.retries.earn();
    let mut tried: Vec<String> = Vec::new();
    let mut resets = 0;
    let mut last: Option<Failure> = None;
    loop {
        let table = shared.table.load_full();
        let model = table.get(name).ok_or_else(|| ApiError::unknown_model(name, &table))?;
        let Some(backend) = model.pick(&tried, shared.turn.fetch_add(1, Ordering::Relaxed)) else {
            return Err(give_up(gateway, name, last, model.absence));
        };
        if let Some(failure) = &last {
            shared.metrics.retries.get_or_create(&ByCause { cause: failure.cause }).inc();
        }
        let in_flight = backend.enter();
        tried.push(backend.id.clone());
        let failure = match timeout_at(deadline, shared.upstream.send(backend.address, outgoing)).await {
            Ok(Ok(response)) if !is_draining(&response) => {
                debug!(
                    model = name,
                    pod = backend.name,
                    status = response.status().as_u16(),
                    "request routed"
                );
                return Ok((response, in_flight));
            }
            Ok(Ok(_)) => Failure { cause: Cause::Draining, reason: "it is shutting down".into() },
            Ok(Err(failure)) => failure,
            Err(_) => {
                shared.metrics.lost(Cause::Timeout);
                return Err(ApiError::timeout(name, &shared.limits));
            }
        };
        debug!(model = name, pod = backend.name, cause = ?failure.cause, reason = failure.reason, "attempt failed");
        resets += usize::from(failure.cause == Cause::Reset);
        let may_retry =
            tried.len() < shared.limits.max_attempts && resets < MAX_RESETS && shared.retries.spend();
        if !may_retry {
            return Err(give_up(gateway, name, Some(failure), model.absence));
        }
        last = Some(failure);
    }
}

fn give_up(gateway: &Gateway, name: &str, last: Option<Failure>, absence: crate::Absence) -> ApiError {
    let cause = last.as_ref().map_or(Cause::Unroutable, |f| f.cause);
    gateway.0.metrics.lost(cause);
    match last {
        None => ApiError::unroutable(name, absence),
        Some(failure) if failure.cause == Cause::Draining => {
            ApiError::unroutable(name, crate::Absence::Draining)
        }
        Some(failure) => ApiError::Upstream { name: name.to_owned(), reason: failure.reason },
    }
}

fn is_draining(response: &Response<Incoming>) -> bool {
    response.status() == StatusCode::SERVICE_UNAVAILABLE && response.headers().contains_key(headers::DRAINING)
}
