//! A bar on a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

const WIDTH: u64 = 30;
const PERIOD: Duration = Duration::from_millis(100);

/// One line of standard error, rewritten now and then; nothing where that is no terminal.
pub(super) struct Bar {
    total: u64,
    /// Absent without a terminal.
    shown: Option<Instant>,
}

impl Bar {
    pub(super) fn new(total: u64) -> Self {
        Self { total: total.max(1), shown: io::stderr().is_terminal().then(Instant::now) }
    }

    pub(super) fn show(&mut self, done: u64) {
        if self.shown.is_none_or(|shown| shown.elapsed() < PERIOD) {
            return;
        }
        self.shown = Some(Instant::now());
        let full = (done * WIDTH / self.total).min(WIDTH) as usize;
        let bar = format!("{:<width$}", "#".repeat(full), width = WIDTH as usize);
        eprint!("\r\x1b[Ksimulating [{bar}] {done} of {} requests", self.total);
        // Progress that cannot be shown is no reason to fail.
        let _ = io::stderr().flush();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.shown.is_some() {
            eprint!("\r\x1b[K");
        }
    }
}
