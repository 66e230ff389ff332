//! What a person sees of a fetch.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// A sign of life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The file was there and right.
    AlreadyComplete,
    /// A file was there that is not, or not known to be, the wanted one.
    Replacing,
    /// Bytes are there.
    Received {
        /// Bytes of the file so far.
        num_bytes: u64,
        /// Bytes of the whole file, when the server says.
        total: Option<u64>,
    },
    /// An attempt failed and another one follows.
    Retrying {
        /// What it met.
        cause: String,
        /// Time until the next one.
        wait: Duration,
    },
    /// The file is in place.
    Done,
}

/// Prints to standard error: one line that is rewritten on a terminal, else a line now and then.
pub(super) struct Printer {
    name: String,
    rewrites: bool,
    printed: Option<Instant>,
}

impl Printer {
    pub(super) fn new(to: &Path) -> Self {
        let rewrites = std::io::stderr().is_terminal();
        Self {
            name: to.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            rewrites,
            printed: None,
        }
    }

    pub(super) fn print(&mut self, progress: &Progress) {
        let text = describe(&self.name, progress);
        if !matches!(progress, Progress::Received { .. }) {
            let clear = if self.rewrites { "\r\x1b[K" } else { "" };
            show(&format!("{clear}{text}\n"));
            return;
        }
        let pause = if self.rewrites { Duration::from_millis(100) } else { Duration::from_secs(5) };
        if self.printed.is_some_and(|printed| printed.elapsed() < pause) {
            return;
        }
        self.printed = Some(Instant::now());
        if self.rewrites {
            show(&format!("\r\x1b[K{text}"));
        } else {
            show(&format!("{text}\n"));
        }
    }
}

/// Progress that cannot be shown is no reason to fail.
fn show(text: &str) {
    let mut stderr = std::io::stderr();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

fn describe(name: &str, progress: &Progress) -> String {
    match progress {
        Progress::AlreadyComplete => format!("{name}: already complete"),
        Progress::Replacing => {
            format!("{name}: what is there is not known to be this file, whole; it is brought anew")
        }
        Progress::Received { num_bytes, total: Some(total) } => {
            let percent = num_bytes * 100 / (*total).max(1);
            format!("{name}: {percent} % of {}", megabytes(*total))
        }
        Progress::Received { num_bytes, total: None } => format!("{name}: {}", megabytes(*num_bytes)),
        Progress::Retrying { cause, wait } => {
            format!("{name}: {cause}; next attempt in {:.1} s", wait.as_secs_f32())
        }
        Progress::Done => format!("{name}: complete"),
    }
}

fn megabytes(num_bytes: u64) -> String {
    format!("{:.1} MB", num_bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sign_of_life_reads_as_a_line() {
        let text = |progress| describe("a.gguf", &progress);
        assert_eq!(
            text(Progress::Received { num_bytes: 500_000, total: Some(2_000_000) }),
            "a.gguf: 25 % of 2.0 MB"
        );
        assert_eq!(text(Progress::Received { num_bytes: 500_000, total: None }), "a.gguf: 0.5 MB");
        let retry = Progress::Retrying { cause: "it broke".to_owned(), wait: Duration::from_millis(1500) };
        assert_eq!(text(retry), "a.gguf: it broke; next attempt in 1.5 s");
    }
}
