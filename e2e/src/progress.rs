//! Lines that say what is being waited for, and waits that end.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How often a condition is tried.
const POLL: Duration = Duration::from_millis(100);
/// How often a person is told that the wait goes on.
const REMIND: Duration = Duration::from_secs(5);

/// Prints each step with the seconds since the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    start: Instant,
}

impl Progress {
    /// Starts the clock of all lines.
    #[must_use]
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Prints one line, as `[ 3.1s] text`.
    pub(crate) fn say(&self, text: impl AsRef<str>) {
        eprintln!("[{:5.1}s] {}", self.start.elapsed().as_secs_f32(), text.as_ref());
    }

    /// Tries `condition` until it holds, and says so when that takes long.
    ///
    /// `Ok(Err(reason))` means "not yet", and the last reason is part of the error after the deadline.
    ///
    /// # Errors
    /// What `condition` returned as an error, or the deadline with the last reason.
    pub(crate) async fn wait<T>(
        &self,
        what: &str,
        deadline: Duration,
        mut condition: impl AsyncFnMut() -> Result<Result<T, String>>,
    ) -> Result<T> {
        let begin = Instant::now();
        let mut reminded = begin;
        loop {
            // A condition may hang on a socket, so each try is bounded by what is left of the deadline.
            let left = deadline.saturating_sub(begin.elapsed());
            let reason = match tokio::time::timeout(left, condition()).await {
                Ok(outcome) => match outcome? {
                    Ok(value) => return Ok(value),
                    Err(reason) => reason,
                },
                Err(_) => "the last try gave no answer".to_owned(),
            };
            if begin.elapsed() >= deadline {
                bail!("{what} did not come within {} seconds: {reason}", deadline.as_secs());
            }
            if reminded.elapsed() >= REMIND {
                reminded = Instant::now();
                self.say(format!("still waiting for {what} (up to {} s): {reason}", deadline.as_secs()));
            }
            tokio::time::sleep(POLL).await;
        }
    }
}
