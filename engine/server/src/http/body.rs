//! A request's body: JSON only, within a size, a time, and a share of memory.

use std::{sync::Arc, time::Duration};

use axum::extract::Request;
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::ApiError;

/// Largest body.
pub(crate) const MAX_BODY_BYTES: usize = 16 << 20;
/// Memory for all bodies that are being read, parsed and tokenised at once.
const MAX_BODIES_BYTES: usize = 256 << 20;
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// How much of a refused body is read, and for how long.
const MAX_DISCARDED_BYTES: usize = 64 << 20;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);
/// Who sends nothing for so long waits for the answer.
const DISCARD_PAUSE: Duration = Duration::from_millis(500);
/// Permits are counted in units of this many bytes.
const UNIT: usize = 1024;

/// Memory that bodies may take together.
#[derive(Clone, Debug)]
pub(crate) struct BodyBudget(Arc<Semaphore>);

impl Default for BodyBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_BODIES_BYTES / UNIT)))
    }
}

/// A whole body; its share of the budget is given back on drop.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) bytes: Bytes,
    _share: OwnedSemaphorePermit,
}

impl BodyBudget {
    /// Reads the body of `request`.
    ///
    /// # Errors
    /// 400 when it is not announced as JSON, 413 when it is too large, 408 when it comes too slowly, 503 when other
    /// bodies take all the memory there is for them.
    pub(crate) async fn read(&self, request: Request) -> Result<Body, ApiError> {
        require_json(request.headers())?;
        let announced = content_length(request.headers()).unwrap_or(MAX_BODY_BYTES);
        if announced > MAX_BODY_BYTES {
            return Err(refuse(request, ApiError::body_too_large(MAX_BODY_BYTES)).await);
        }
        let units = u32::try_from(announced.div_ceil(UNIT)).expect("a body's limit fits");
        let Ok(share) = Arc::clone(&self.0).try_acquire_many_owned(units) else {
            let error = ApiError::unavailable("too many large requests are being read; try again later");
            return Err(refuse(request, error).await);
        };
        let mut body = request.into_body();
        let read = Limited::new(&mut body, MAX_BODY_BYTES).collect();
        match tokio::time::timeout(READ_TIMEOUT, read).await {
            Err(_) => Err(ApiError::body_timeout()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                discard(body).await;
                Err(ApiError::body_too_large(MAX_BODY_BYTES))
            }
            Ok(Err(error)) => Err(ApiError::malformed(format!("the request's body ended early: {error}"))),
            Ok(Ok(body)) => Ok(Body { bytes: body.to_bytes(), _share: share }),
        }
    }
}

/// The refusal of a request whose body nobody has read: reads it first, without keeping anything. A client that is cut
/// off while it sends would see a reset connection instead of the answer; one that asks first need not send.
pub(crate) async fn refuse(request: Request, error: ApiError) -> ApiError {
    if !request.headers().contains_key(header::EXPECT) {
        discard(request.into_body()).await;
    }
    error
}

/// Reads on for a while, as long as something comes.
async fn discard(body: axum::body::Body) {
    let mut left = MAX_DISCARDED_BYTES;
    let mut chunks = body.into_data_stream();
    let reading = async {
        while let Ok(Some(Ok(chunk))) = tokio::time::timeout(DISCARD_PAUSE, chunks.next()).await {
            left = left.saturating_sub(chunk.len());
            if left == 0 {
                break;
            }
        }
    };
    // Who sends for longer than this is cut off.
    let _ = tokio::time::timeout(DISCARD_TIMEOUT, reading).await;
}

fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(ApiError::malformed("Unsupported Media Type: Only 'application/json' is allowed"))
}

fn content_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
