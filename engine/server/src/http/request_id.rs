//! `X-Request-Id`: a client's own is kept where it is harmless, and every answer carries one.

use axum::{extract::Request, middleware::Next, response::Response};
use http::{HeaderMap, HeaderName, HeaderValue};

const HEADER: HeaderName = HeaderName::from_static("x-request-id");
const MAX_LEN: usize = 128;

/// A request's name in logs and in the ids of its answer; visible ASCII without anything that could break either.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) String);

impl RequestId {
    fn of(headers: &HeaderMap) -> Self {
        let given = headers.get(HEADER).and_then(|value| value.to_str().ok());
        let harmless = |id: &&str| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
            !id.is_empty() && id.len() <= MAX_LEN && id.bytes().all(allowed)
        };
        Self(given.filter(harmless).map_or_else(|| uuid::Uuid::new_v4().simple().to_string(), str::to_owned))
    }
}

/// Names the request and its answer.
pub(super) async fn attach(mut request: Request, next: Next) -> Response {
    let id = RequestId::of(request.headers());
    let value = HeaderValue::from_str(&id.0).ok();
    request.extensions_mut().insert(id);
    let mut response = next.run(request).await;
    if let Some(value) = value {
        response.headers_mut().insert(HEADER, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_for(given: &[u8]) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, HeaderValue::from_bytes(given).unwrap());
        RequestId::of(&headers).0
    }

    #[test]
    fn a_harmless_id_is_kept_and_another_replaced() {
        assert_eq!(id_for(b"trace-1_a.b:c/d"), "trace-1_a.b:c/d");
        for odd in [&b""[..], b"with space", b"quote\"", b"\xff\xfe", &[b'a'; MAX_LEN + 1]] {
            assert_eq!(id_for(odd).len(), 32);
        }
    }
}
