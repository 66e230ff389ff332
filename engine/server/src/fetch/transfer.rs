//! One HTTP exchange that brings bytes.

use std::error::Error;
use std::time::Duration;

use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_RANGE, ETAG, HeaderMap, IF_RANGE, RANGE, RETRY_AFTER,
    TRANSFER_ENCODING,
};
use http::{HeaderName, StatusCode, Version};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, Response};

use super::partial::Partial;
use super::source::Source;
use super::{FetchError, Progress};

const MAX_REDIRECTS: usize = 5;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How an exchange ended without all bytes.
#[derive(Debug)]
pub(super) enum Failure {
    /// No server answered; another attempt may do better.
    Unanswered { cause: String },
    /// Another attempt may do better, after the time that the server asked for.
    Transient { cause: String, wait: Option<Duration> },
    /// It may not.
    Permanent(FetchError),
}

impl From<FetchError> for Failure {
    fn from(error: FetchError) -> Self {
        Self::Permanent(error)
    }
}

fn transient(cause: impl Into<String>) -> Failure {
    Failure::Transient { cause: cause.into(), wait: None }
}

/// A client that follows a few redirects, never from TLS to plain text.
pub(super) fn client(source: &Source) -> Result<Client, FetchError> {
    let follow = |attempt: Attempt<'_>| {
        let was_secure = attempt.previous().last().is_some_and(|url| url.scheme() == "https");
        if attempt.previous().len() > MAX_REDIRECTS {
            attempt.error(format!("more than {MAX_REDIRECTS} redirects"))
        } else if was_secure && attempt.url().scheme() != "https" {
            attempt.error("a redirect from https to plain http")
        } else {
            attempt.follow()
        }
    };
    let client = Client::builder().redirect(Policy::custom(follow)).connect_timeout(CONNECT_TIMEOUT).build();
    client.map_err(|error| FetchError::Failed { uri: source.shown().to_owned(), cause: describe(error) })
}

/// Asks for what is missing in `partial` and appends it. Done means that all bytes are there, as far as the server
/// tells how many there are.
pub(super) async fn attempt(
    client: &Client,
    source: &Source,
    partial: &mut Partial,
    stall_timeout: Duration,
    report: &mut dyn FnMut(Progress),
) -> Result<(), Failure> {
    let mut request = client.get(source.url().clone()).header(ACCEPT_ENCODING, "identity");
    if let Some((etag, _)) = partial.resumable() {
        request = request.header(RANGE, format!("bytes={}-", partial.len())).header(IF_RANGE, etag);
    }
    let stalled = || transient(silence(stall_timeout));
    let sent = tokio::time::timeout(stall_timeout, request.send())
        .await
        .map_err(|_| Failure::Unanswered { cause: silence(stall_timeout) })?;
    let mut response = sent.map_err(|error| failed_exchange(source, error))?;
    let total = accept(source, partial, &response)?;
    report(Progress::Received { num_bytes: partial.len(), total });
    loop {
        let chunk = tokio::time::timeout(stall_timeout, response.chunk()).await.map_err(|_| stalled())?;
        let chunk = chunk.map_err(|error| transient(describe(error)))?;
        let Some(chunk) = chunk else { break };
        // Plain writes: nothing else runs in this process that they could hold up.
        partial.append(&chunk)?;
        report(Progress::Received { num_bytes: partial.len(), total });
    }
    match total {
        Some(total) if total != partial.len() => {
            let cause = format!("the server sent {} of {total} bytes", partial.len());
            if partial.len() > total {
                partial.restart(None, None)?;
            }
            Err(transient(cause))
        }
        _ => Ok(()),
    }
}

/// Judges the head of an answer and prepares `partial` for its body; says how long the whole content is.
fn accept(source: &Source, partial: &mut Partial, response: &Response) -> Result<Option<u64>, Failure> {
    match response.status() {
        StatusCode::OK
            if header(response.headers(), &CONTENT_ENCODING).is_some_and(|coding| coding != "identity") =>
        {
            let cause = "the server compresses the file; serve it as it is".to_owned();
            Err(FetchError::Failed { uri: source.shown().to_owned(), cause }.into())
        }
        StatusCode::OK => {
            let total = response.content_length();
            if total.is_none() && !ends_plainly(response) && !source.has_checksum() {
                return Err(FetchError::NoLength { uri: source.shown().to_owned() }.into());
            }
            partial.restart(strong_etag(response.headers()), total)?;
            Ok(total)
        }
        StatusCode::PARTIAL_CONTENT => {
            let range = header(response.headers(), &CONTENT_RANGE).and_then(content_range);
            match (partial.resumable(), range) {
                (Some((etag, total)), Some(range))
                    if range == (partial.len(), total)
                        && strong_etag(response.headers()).is_none_or(|sent| sent == etag) =>
                {
                    Ok(Some(total))
                }
                _ => {
                    partial.restart(None, None)?;
                    Err(transient("the server sent a part that was not asked for"))
                }
            }
        }
        StatusCode::RANGE_NOT_SATISFIABLE => {
            partial.restart(None, None)?;
            Err(transient("the file is shorter than it was"))
        }
        status if may_recover(status) => {
            let wait = header(response.headers(), &RETRY_AFTER).and_then(|seconds| seconds.parse().ok());
            let cause = format!("the server answered {status}");
            Err(Failure::Transient { cause, wait: wait.map(Duration::from_secs) })
        }
        status => {
            let (uri, status) = (source.shown().to_owned(), status.to_string());
            Err(FetchError::Refused { uri, remedy: remedy(response.status()), status }.into())
        }
    }
}

/// Whether the end of a body without a length differs from a broken connection.
fn ends_plainly(response: &Response) -> bool {
    response.version() >= Version::HTTP_2 || response.headers().contains_key(TRANSFER_ENCODING)
}

fn may_recover(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
}

fn remedy(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "check the credentials or the signature in the uri"
        }
        StatusCode::NOT_FOUND | StatusCode::GONE => "check that the uri names an existing file",
        _ => "check that the uri can be downloaded with a plain get",
    }
}

fn failed_exchange(source: &Source, error: reqwest::Error) -> Failure {
    let permanent = error.is_redirect() || error.is_builder();
    let cause = describe(error);
    if permanent {
        return FetchError::Failed { uri: source.shown().to_owned(), cause }.into();
    }
    Failure::Unanswered { cause }
}

fn silence(stall_timeout: Duration) -> String {
    format!("the server was silent for {} s", stall_timeout.as_secs_f32())
}

fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The ETag, if it stands for the very bytes (a weak one does not).
fn strong_etag(headers: &HeaderMap) -> Option<&str> {
    header(headers, &ETAG).filter(|etag| etag.starts_with('"'))
}

/// First byte and total length of `bytes FIRST-LAST/TOTAL` that runs to the end of the content.
fn content_range(text: &str) -> Option<(u64, u64)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, total): (u64, u64, u64) =
        (first.parse().ok()?, last.parse().ok()?, total.parse().ok()?);
    (last.checked_add(1) == Some(total)).then_some((first, total))
}

/// What went wrong, down to the operating system's words, without the URI and its secrets.
fn describe(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_range_must_run_to_the_end() {
        assert_eq!(content_range("bytes 5-9/10"), Some((5, 10)));
        for text in [
            "bytes 5-8/10",
            "bytes */10",
            "bytes 5-9/*",
            "items 5-9/10",
            "bytes 5-18446744073709551615/0",
            "",
        ] {
            assert_eq!(content_range(text), None, "{text}");
        }
    }
}
