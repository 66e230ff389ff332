//! Answers of the gateway itself, in the shape that OpenAI clients read.

use axum::{Json, body::Body, response::IntoResponse};
use http::{HeaderValue, Response, StatusCode, header::RETRY_AFTER};
use serde_json::{Value, json};

use crate::{Absence, Limits, Table};

/// Names listed in the answer to an unknown one.
const MAX_NAMES_SHOWN: usize = 10;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("{0}")]
    BadRequest(String),
    #[error("the model '{name}' does not exist; {known}")]
    UnknownModel { name: String, known: String },
    #[error("no such endpoint: {method} {path}; the gateway answers GET /v1/models and POST /v1/...")]
    UnknownPath { method: http::Method, path: String },
    #[error("the request body is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("the request body did not come within {seconds} seconds")]
    SlowBody { seconds: u64 },
    #[error("the gateway has as many requests in work as it may; try again in a moment")]
    Overloaded,
    #[error("the gateway is shutting down; send the request again")]
    ShuttingDown,
    #[error("the model '{name}' cannot be reached: {reason}")]
    Unroutable { name: String, reason: String, retry_after: u32 },
    #[error("no replica of '{name}' took the request: {reason}")]
    Upstream { name: String, reason: String },
    #[error("no replica of '{name}' answered within {seconds} seconds")]
    Timeout { name: String, seconds: u64 },
}

impl ApiError {
    pub(crate) fn unknown_model(name: &str, table: &Table) -> Self {
        let names: Vec<&str> = table.iter().map(|(name, _)| name).take(MAX_NAMES_SHOWN).collect();
        let known = match names.as_slice() {
            [] => "no model is served yet".to_owned(),
            names => format!("GET /v1/models lists what is served, among it {}", names.join(", ")),
        };
        Self::UnknownModel { name: name.to_owned(), known }
    }

    pub(crate) fn unroutable(name: &str, absence: Absence) -> Self {
        let (reason, retry_after) = match absence {
            Absence::Stopped => ("it is stopped or scaled to zero replicas".to_owned(), 60),
            Absence::Starting => ("it is starting and has no replica yet".to_owned(), 5),
            Absence::NoneReady { replicas } => (format!("none of its replicas ({replicas}) is ready yet"), 5),
            Absence::Draining => ("all of its replicas are shutting down".to_owned(), 5),
        };
        Self::Unroutable { name: name.to_owned(), reason, retry_after }
    }

    pub(crate) fn timeout(name: &str, limits: &Limits) -> Self {
        Self::Timeout { name: name.to_owned(), seconds: limits.response_timeout.as_secs() }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::UnknownModel { .. } | Self::UnknownPath { .. } => StatusCode::NOT_FOUND,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::SlowBody { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::Overloaded | Self::ShuttingDown | Self::Unroutable { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Upstream { .. } => StatusCode::BAD_GATEWAY,
            Self::Timeout { .. } => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    fn kind(&self) -> &'static str {
        match self.status().as_u16() {
            400 => "BadRequestError",
            404 => "NotFoundError",
            500.. => "ServiceUnavailableError",
            _ => "InvalidRequestError",
        }
    }

    fn retry_after(&self) -> Option<u32> {
        match self {
            Self::Unroutable { retry_after, .. } => Some(*retry_after),
            Self::Overloaded | Self::ShuttingDown | Self::Upstream { .. } => Some(1),
            _ => None,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response<Body> {
        let status = self.status();
        let param = matches!(self, Self::UnknownModel { .. }).then_some("model");
        let body = envelope(&self.to_string(), self.kind(), param, status);
        let mut response = (status, Json(body)).into_response();
        if let Some(seconds) = self.retry_after() {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// The error object of OpenAI's API as engines write it.
pub(crate) fn envelope(message: &str, kind: &str, param: Option<&str>, status: StatusCode) -> Value {
    json!({"error": {"message": message, "type": kind, "param": param, "code": status.as_u16()}})
}
