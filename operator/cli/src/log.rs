use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

/// Who reads the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// A person at a terminal, who is told the rest in plain lines: warnings, as text.
    Person,
    /// Whoever runs a cluster: everything of note, as JSON unless it goes to a terminal.
    Collector,
}

/// Logs go to standard error. `REGATTA_LOG` filters them.
pub(crate) fn install(reader: Reader) {
    let default = if reader == Reader::Person { "warn" } else { "info" };
    let filter = EnvFilter::try_from_env("REGATTA_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr);
    match (reader, stderr().is_terminal()) {
        (Reader::Collector, false) => builder.json().flatten_event(true).init(),
        (_, terminal) => builder.with_ansi(terminal).init(),
    }
}
