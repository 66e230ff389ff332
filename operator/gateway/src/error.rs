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
    #[error("{path} does not take {method}")]
    WrongMethod { method: http::Method, path: String },
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
            Self::WrongMethod { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::SlowBody { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::Overloaded | Self::ShuttingDown | Self::Unroutable { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Upstream { .. } => StatusCode::BAD_GATEWAY,
            Self::Timeout { .. } => StatusCode::GATEWAY_TIMEOUT,
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
        let body = envelope(&self.to_string(), param, status);
        let mut response = (status, Json(body)).into_response();
        if let Some(seconds) = self.retry_after() {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// The error object of OpenAI's API as engines write it: `type` and `code` both follow from `status`, which stands for
/// the HTTP status where an answer has begun and has no other way to tell it.
pub(crate) fn envelope(message: &str, param: Option<&str>, status: StatusCode) -> Value {
    json!({"error": {"message": message, "type": kind(status), "param": param, "code": status.as_u16()}})
}

/// The names that engines give, and two for what only a gateway meets.
fn kind(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "BadRequestError",
        StatusCode::NOT_FOUND => "NotFoundError",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowedError",
        StatusCode::REQUEST_TIMEOUT => "RequestTimeoutError",
        StatusCode::PAYLOAD_TOO_LARGE => "RequestTooLargeError",
        StatusCode::BAD_GATEWAY => "BadGatewayError",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailableError",
        StatusCode::GATEWAY_TIMEOUT => "GatewayTimeoutError",
        _ => "InternalServerError",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use http_body_util::BodyExt;

    use super::*;

    /// The page that lists status and type of each error.
    const PAGE: &str = include_str!("../../../docs/src/reference/gateway.md");

    fn every_error() -> Vec<ApiError> {
        let (name, reason) = ("m".to_owned(), "r".to_owned());
        let (method, path) = (http::Method::GET, "/".to_owned());
        vec![
            ApiError::BadRequest("b".into()),
            ApiError::UnknownModel { name: name.clone(), known: "k".into() },
            ApiError::UnknownPath { method: method.clone(), path: path.clone() },
            ApiError::WrongMethod { method, path },
            ApiError::TooLarge { limit: 1 },
            ApiError::SlowBody { seconds: 1 },
            ApiError::Overloaded,
            ApiError::ShuttingDown,
            ApiError::Unroutable { name: name.clone(), reason: reason.clone(), retry_after: 1 },
            ApiError::Upstream { name: name.clone(), reason },
            ApiError::Timeout { name, seconds: 1 },
        ]
    }

    #[tokio::test]
    async fn status_type_and_code_of_each_error_agree_with_each_other_and_with_the_page() {
        let mut rows = BTreeSet::new();
        for error in every_error() {
            let response = error.into_response();
            let status = response.status();
            let body = response.into_body().collect().await.expect("a body").to_bytes();
            let body: Value = serde_json::from_slice(&body).expect("JSON");
            assert_eq!(body["error"]["code"], status.as_u16());
            assert_eq!(body["error"]["type"], kind(status));
            assert_ne!(kind(status), "InternalServerError", "{status} has no name of its own");
            rows.insert(format!("| {} | `{}` |", status.as_u16(), kind(status)));
        }
        let section = PAGE.split("\n## ").find(|s| s.starts_with("Errors")).expect("a section on errors");
        let told: BTreeSet<String> = section
            .lines()
            .filter(|line| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit())
            .map(|line| line.split(" | ").take(2).collect::<Vec<_>>().join(" | ") + " |")
            .collect();
        assert_eq!(told, rows);
    }
}
