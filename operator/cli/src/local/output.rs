//! What an engine process writes: passed on under its name, and searched for its last error.

use std::{cell::Cell, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader},
    process::{ChildStderr, ChildStdout},
    time::timeout,
};

const MAX_LINE: u64 = 8192;
/// For what a process that has ended left in its pipes.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The two streams of one process.
pub(crate) struct Output {
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    last_error: Cell<Option<String>>,
}

impl Output {
    pub(crate) fn new(stdout: Option<ChildStdout>, stderr: Option<ChildStderr>) -> Self {
        Self { stdout, stderr, last_error: Cell::new(None) }
    }

    /// Passes every line on to standard error while `work` goes on, and what is left after it; gives the work's
    /// outcome and the last error among the lines.
    pub(crate) async fn during<T>(
        mut self,
        name: &str,
        work: impl Future<Output = T>,
    ) -> (T, Option<String>) {
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        let mut passing = Box::pin(async {
            tokio::join!(self.pass(stdout, name), self.pass(stderr, name));
        });
        let mut work = Box::pin(work);
        let outcome = tokio::select! {
            outcome = &mut work => outcome,
            () = &mut passing => return (work.await, self.last_error.take()),
        };
        let _ = timeout(LAST_WORDS, &mut passing).await;
        drop(passing);
        (outcome, self.last_error.take())
    }

    async fn pass(&self, pipe: Option<impl AsyncRead + Unpin>, name: &str) {
        let Some(pipe) = pipe else { return };
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line).await;
            if matches!(read, Ok(0) | Err(_)) {
                return;
            }
            let line = String::from_utf8_lossy(&line);
            say!("[{name}] {}", line.trim_end());
            if let Some(error) = error_of(&line) {
                self.last_error.set(Some(error.to_owned()));
            }
        }
    }
}

/// The error that a line tells: of the command line (`error: ...`) or of the log (`TIME ERROR TARGET: ...`).
fn error_of(line: &str) -> Option<&str> {
    let line = line.trim();
    let logged = || line.split_once(" ERROR ").and_then(|(_, rest)| rest.split_once(": "));
    line.strip_prefix("error: ").or_else(|| logged().map(|(_, error)| error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_found_in_either_form() {
        let logged = "2026-01-01T00:00:00.000000Z ERROR regatta_engine: cannot read /m: gone\n";
        assert_eq!(error_of(logged), Some("cannot read /m: gone"));
        assert_eq!(error_of("error: invalid value 'x'\n"), Some("invalid value 'x'"));
        assert_eq!(error_of("2026-01-01T00:00:00.000000Z  INFO regatta_engine: no ERROR here"), None);
    }
}
