//! Request bodies: bounded, read whole, looked into but never rewritten.

use std::{borrow::Cow, sync::Arc};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::Deserialize;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::{Limits, error::ApiError};

/// Bodies are counted against the common bound in pieces of this many bytes.
const PIECE: usize = 1024;

/// A request body and its share of the memory for all bodies.
pub(crate) struct Buffered {
    pub bytes: Bytes,
    _share: Option<OwnedSemaphorePermit>,
}

/// The memory for all bodies.
pub(crate) fn shared_memory(limits: &Limits) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(limits.max_body_total.div_ceil(PIECE)))
}

/// Reads `body` to its end.
///
/// # Errors
/// When it is too large, too slow, broken off, or when the memory for all bodies is used up.
pub(crate) async fn read(body: Body, limits: &Limits, memory: &Arc<Semaphore>) -> Result<Buffered, ApiError> {
    let slow = ApiError::SlowBody { seconds: limits.body_timeout.as_secs() };
    timeout(limits.body_timeout, collect(body, limits, memory)).await.map_err(|_| slow)?
}

async fn collect(mut body: Body, limits: &Limits, memory: &Arc<Semaphore>) -> Result<Buffered, ApiError> {
    let mut bytes = BytesMut::new();
    let mut share: Option<OwnedSemaphorePermit> = None;
    let mut pieces = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| ApiError::BadRequest(format!("the request body broke off: {e}")))?;
        let Ok(data) = frame.into_data() else { continue };
        let total = bytes.len() + data.len();
        if total > limits.max_body {
            return Err(ApiError::TooLarge { limit: limits.max_body });
        }
        let more = total.div_ceil(PIECE) - pieces;
        let permit = memory.clone().try_acquire_many_owned(more as u32).map_err(|_| ApiError::Overloaded)?;
        match &mut share {
            Some(share) => share.merge(permit),
            None => share = Some(permit),
        }
        pieces += more;
        bytes.extend_from_slice(&data);
    }
    Ok(Buffered { bytes: bytes.freeze(), _share: share })
}

#[derive(Deserialize)]
#[serde(expecting = "a JSON object")]
struct Peek<'a> {
    #[serde(borrow)]
    model: Option<Cow<'a, str>>,
}

/// The model that a JSON request names.
///
/// # Errors
/// When the body is no JSON object, or names no model or two.
pub(crate) fn model(body: &[u8]) -> Result<String, ApiError> {
    let peek: Peek<'_> = serde_json::from_slice(body)
        .map_err(|e| ApiError::BadRequest(format!("the request body must be a JSON object: {e}")))?;
    let named = peek.model.filter(|m| !m.is_empty());
    let missing = || ApiError::BadRequest("the request must name a model in its field 'model'".into());
    named.map(Cow::into_owned).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_found_wherever_it_stands() {
        let body = br#"{"messages":[{"model":"inner","content":"\u00e9"}],"model":"a\/b","stream":true}"#;
        assert_eq!(model(body).expect("named"), "a/b");
    }

    #[test]
    fn a_body_that_names_no_model_or_two_is_refused() {
        let bodies = [
            "",
            "[]",
            "{}",
            r#"{"model":""}"#,
            r#"{"model":3}"#,
            r#"{"model":"a","model":"b"}"#,
            r#"{"model":"a"} x"#,
        ];
        for body in bodies {
            let Err(ApiError::BadRequest(text)) = model(body.as_bytes()) else { panic!("{body} was taken") };
            assert!(!text.contains("Peek"), "{text}");
        }
    }

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused_and_gives_its_memory_back() {
        let limits = Limits { max_body: 10, max_body_total: 4096, ..Limits::default() };
        let memory = shared_memory(&limits);
        let before = memory.available_permits();
        let outcome = read(Body::from("x".repeat(11)), &limits, &memory).await;
        assert!(matches!(outcome, Err(ApiError::TooLarge { limit: 10 })));
        let kept = read(Body::from("x".repeat(10)), &limits, &memory).await.map_err(|_| ()).expect("fits");
        assert_eq!(memory.available_permits(), before - 1);
        drop(kept);
        assert_eq!(memory.available_permits(), before);
    }

    #[tokio::test]
    async fn bodies_share_one_bound() {
        let limits = Limits { max_body_total: 2048, ..Limits::default() };
        let memory = shared_memory(&limits);
        let _first =
            read(Body::from("x".repeat(1500)), &limits, &memory).await.map_err(|_| ()).expect("fits");
        let second = read(Body::from("x"), &limits, &memory).await;
        assert!(matches!(second, Err(ApiError::Overloaded)));
    }
}
