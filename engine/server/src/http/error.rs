//! Errors as clients see them: `{"error": {"message", "type", "param", "code"}}`.

use std::borrow::Cow;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use crate::{engine::SubmitError, text::TextError};

/// Tells a gateway that this replica is going away and that another one should get the request.
pub const DRAINING_HEADER: HeaderName = HeaderName::from_static("x-regatta-draining");

/// Names of served models that an error lists.
const MAX_SHOWN_NAMES: usize = 8;

/// Seconds after which a refused client may try again.
const RETRY_AFTER_SECONDS: &str = "1";

/// A refused or failed request.
#[derive(Clone, Debug)]
pub struct ApiError {
    status: StatusCode,
    kind: &'static str,
    message: Cow<'static, str>,
    param: Option<Cow<'static, str>>,
    draining: bool,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, kind, message: message.into(), param: None, draining: false }
    }

    /// 400: a value that cannot be taken; `param` is the field.
    pub fn invalid(param: impl Into<Cow<'static, str>>, message: impl Into<Cow<'static, str>>) -> Self {
        Self { param: Some(param.into()), ..Self::new(StatusCode::BAD_REQUEST, "BadRequestError", message) }
    }

    /// 400: not a request at all (no JSON, no object, a wrong type).
    pub fn malformed(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "Bad Request", message)
    }

    /// 401.
    pub fn unauthorized() -> Self {
        let message = "a valid API key is needed: send `Authorization: Bearer KEY`";
        Self::new(StatusCode::UNAUTHORIZED, "AuthenticationError", message)
    }

    /// 404: a model that is not served here.
    pub fn unknown_model(name: &str, served_names: &[String]) -> Self {
        let shown: String = name.chars().take(256).collect();
        let names: Vec<String> =
            served_names.iter().take(MAX_SHOWN_NAMES).map(|name| format!("`{name}`")).collect();
        let more = match served_names.len().saturating_sub(MAX_SHOWN_NAMES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let message =
            format!("The model `{shown}` does not exist. This engine serves {}{more}.", names.join(", "));
        Self { param: Some("model".into()), ..Self::new(StatusCode::NOT_FOUND, "NotFoundError", message) }
    }

    /// 404: no such path.
    pub fn unknown_path(path: &str) -> Self {
        let shown: String = path.chars().take(256).collect();
        Self::new(StatusCode::NOT_FOUND, "NotFoundError", format!("there is no `{shown}` here"))
    }

    /// 405.
    pub fn method_not_allowed() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowedError",
            "this path does not take this method",
        )
    }

    /// 408: the body came too slowly.
    pub fn body_timeout() -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "RequestTimeoutError",
            "the request's body did not arrive in time",
        )
    }

    /// 413.
    pub fn body_too_large(max_bytes: usize) -> Self {
        let message = format!("the request's body is larger than {max_bytes} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestTooLargeError", message)
    }

    /// 500.
    pub fn internal(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", message)
    }

    /// 503 with `Retry-After`.
    pub fn unavailable(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableError", message)
    }

    /// 503 that also says that this replica takes nothing any more.
    pub fn draining() -> Self {
        Self {
            draining: true,
            ..Self::unavailable("this replica is shutting down; send the request to another one")
        }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The body, also a frame of a stream that has begun.
    pub fn body(&self) -> Value {
        json!({"error": {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.status.as_u16(),
        }})
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        let headers = response.headers_mut();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.draining {
            headers.insert(DRAINING_HEADER, HeaderValue::from_static("true"));
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::QueueFull { .. } => Self::unavailable(error.to_string()),
            SubmitError::ShuttingDown => Self::draining(),
            SubmitError::Dead => Self::internal(error.to_string()),
            SubmitError::NoPriorities { .. } => Self::invalid("priority", error.to_string()),
            SubmitError::TooLarge { .. } => Self::invalid("prompt", error.to_string()),
            SubmitError::Impossible(reason) => Self::invalid("prompt", reason.to_string()),
        }
    }
}

impl From<TextError> for ApiError {
    fn from(error: TextError) -> Self {
        let text = error.to_string();
        match error {
            TextError::InputTooLong { .. } => Self::invalid("input_text", text),
            TextError::NoChatTemplate | TextError::Template(_) => Self::invalid("messages", text),
            TextError::Encode(_) => Self::invalid("prompt", text),
            // What is left is the model's fault, found while loading.
            _ => Self::internal(text),
        }
    }
}
