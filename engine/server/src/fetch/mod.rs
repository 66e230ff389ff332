//! Brings one model file onto this machine: over HTTP, resumed where it stopped, checked, then put in place.
//!
//! The file grows as `PATH.part` and takes its name once it is complete and right, so that a file under its name is
//! always whole. `PATH.part.json` keeps what proves that the rest belongs to the same content (a strong ETag), and
//! `PATH.fetched.json` what proves later, without a checksum, that the file is what this command brought.

mod checksum;
mod error;
mod partial;
mod progress;
mod record;
mod source;
mod transfer;

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

pub use checksum::verify_sha256;
pub use error::FetchError;
pub use progress::Progress;

use checksum::Sha256Hex;
use partial::Partial;
use source::Source;
use transfer::Failure;

/// When to try again and when to give up.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Attempts in a row that bring nothing new before giving up.
    pub max_attempts: u32,
    /// As `max_attempts`, while no server has answered at all: the address is likely wrong, which should be known soon.
    pub max_first_attempts: u32,
    /// How long a server may stay silent.
    pub stall_timeout: Duration,
    /// Wait after the first failure; doubles with each further one.
    pub first_wait: Duration,
    /// Longest wait, also when the server asks for more.
    pub max_wait: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 8,
            max_first_attempts: 3,
            stall_timeout: Duration::from_secs(30),
            first_wait: Duration::from_millis(500),
            max_wait: Duration::from_secs(30),
        }
    }
}

/// `regatta-engine fetch`: [`fetch`] with the default policy and progress on standard error.
pub async fn run(uri: &str, to: &Path, sha256: Option<&str>) -> Result<(), FetchError> {
    let mut printer = progress::Printer::new(to);
    fetch(uri, to, sha256, &RetryPolicy::default(), &mut |progress| printer.print(&progress)).await
}

/// Brings `uri` (`http` or `https`) to the file `to`, whose folder must exist, and tells `report` how it goes.
///
/// A file that is already there stays when its SHA-256 is `sha256` (64 hexadecimal digits); when none is asked for, if an
/// earlier fetch of the same URI brought it and it still has its length.
/// The caller installs a TLS provider for rustls first.
///
/// # Errors
/// Bad arguments, an answer that no repetition mends, too many attempts in vain, a full disk, another fetch to the
/// same file, or content with another checksum, which is deleted.
pub async fn fetch(
    uri: &str,
    to: &Path,
    sha256: Option<&str>,
    policy: &RetryPolicy,
    report: &mut dyn FnMut(Progress),
) -> Result<(), FetchError> {
    let expected = sha256.map(Sha256Hex::parse).transpose()?;
    let source = Source::parse(uri, expected.is_some())?;
    match standing(to, &source, expected.as_ref())? {
        Standing::Absent => {}
        Standing::Other => report(Progress::Replacing),
        Standing::Complete => {
            report(Progress::AlreadyComplete);
            return Ok(());
        }
    }
    let mut partial = Partial::open(to, source.shown())?;
    let resumed = !partial.is_empty();
    if let Err(error) = complete(&source, &mut partial, policy, report).await {
        if partial.is_empty() {
            partial.discard()?;
        }
        return Err(error);
    }
    if resumed && partial.check(expected.as_ref()).is_err() {
        report(Progress::Retrying {
            cause: "what was there before is damaged".to_owned(),
            wait: Duration::ZERO,
        });
        partial.restart(None, None)?;
        complete(&source, &mut partial, policy, report).await?;
    }
    if let Err(error) = partial.check(expected.as_ref()) {
        partial.discard()?;
        return Err(error);
    }
    let num_bytes = partial.len();
    partial.finish(to)?;
    record::write(to, source.shown(), num_bytes)?;
    report(Progress::Done);
    Ok(())
}

/// What is there under the file's name.
enum Standing {
    Absent,
    /// The content that is wanted.
    Complete,
    /// Other content, or nobody knows.
    Other,
}

fn standing(file: &Path, source: &Source, expected: Option<&Sha256Hex>) -> Result<Standing, FetchError> {
    let metadata = match std::fs::metadata(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Standing::Absent),
        Err(error) => return Err(FetchError::file(file, error)),
        Ok(metadata) if metadata.is_dir() => {
            return Err(FetchError::file(file, ErrorKind::IsADirectory.into()));
        }
        Ok(metadata) => metadata,
    };
    let complete = match expected {
        None => record::proves(file, source.shown(), metadata.len()),
        Some(expected) => checksum::of_file(file)? == *expected,
    };
    Ok(if complete { Standing::Complete } else { Standing::Other })
}

/// Repeats attempts until all bytes are there.
async fn complete(
    source: &Source,
    partial: &mut Partial,
    policy: &RetryPolicy,
    report: &mut dyn FnMut(Progress),
) -> Result<(), FetchError> {
    let client = transfer::client(source)?;
    let mut furthest = partial.len();
    let mut answered = false;
    let mut failures_in_a_row = 0;
    while !partial.is_complete() {
        let failure = match transfer::attempt(&client, source, partial, policy.stall_timeout, report).await {
            Ok(()) => return Ok(()),
            Err(failure) => failure,
        };
        let (cause, asked_wait) = match failure {
            Failure::Permanent(error) => return Err(error),
            Failure::Unanswered { cause } => (cause, None),
            Failure::Transient { cause, wait } => {
                answered = true;
                (cause, wait)
            }
        };
        if partial.len() > furthest {
            furthest = partial.len();
            failures_in_a_row = 0;
        }
        failures_in_a_row += 1;
        let max = if answered { policy.max_attempts } else { policy.max_first_attempts };
        if failures_in_a_row >= max {
            let uri = source.shown().to_owned();
            return Err(FetchError::GaveUp { uri, attempts: failures_in_a_row, cause });
        }
        let doubled = policy.first_wait.saturating_mul(1 << (failures_in_a_row - 1).min(16));
        let wait = asked_wait.unwrap_or(doubled).min(policy.max_wait);
        report(Progress::Retrying { cause, wait });
        tokio::time::sleep(wait).await;
    }
    Ok(())
}
