//! API keys: `/v1` and what changes the engine ask for one, the rest is open.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{Method, header};
use sha2::{Digest, Sha256};

use super::{ApiError, RESET_PREFIX_CACHE, body::refuse};
use crate::args::settings::ApiKeys;

/// Digests of the accepted keys. Comparing digests of fixed length makes the time independent of how much of a key
/// was guessed.
#[derive(Clone)]
pub(super) struct KeyCheck(Arc<[[u8; 32]]>);

impl KeyCheck {
    pub(super) fn new(keys: &ApiKeys) -> Self {
        Self(keys.iter().map(digest).collect())
    }

    /// Whether `key` is one of the keys; every key is looked at, whichever matches.
    fn accepts(&self, key: &str) -> bool {
        let given = digest(key);
        self.0.iter().fold(false, |found, known| found | (differing_bits(known, &given) == 0))
    }
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

fn differing_bits(a: &[u8; 32], b: &[u8; 32]) -> u8 {
    std::hint::black_box(a.iter().zip(b).fold(0, |difference, (x, y)| difference | (x ^ y)))
}

/// Lets a request under `/v1`, or one that changes the engine, pass if no key is asked for, or if it brings one.
pub(super) async fn check(State(keys): State<KeyCheck>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let guarded =
        (path.starts_with("/v1") || path == RESET_PREFIX_CACHE) && request.method() != Method::OPTIONS;
    if !keys.0.is_empty() && guarded && !bearer(&request).is_some_and(|key| keys.accepts(key)) {
        return refuse(request, ApiError::unauthorized()).await.into_response();
    }
    next.run(request).await
}

fn bearer(request: &Request) -> Option<&str> {
    let value = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_keys_are_accepted() {
        let check = KeyCheck::new(&ApiKeys::from(vec!["one".to_owned(), "two".to_owned()]));
        assert!(check.accepts("one") && check.accepts("two"));
        for wrong in ["", "on", "onee", "One", "three"] {
            assert!(!check.accepts(wrong), "{wrong}");
        }
    }
}
