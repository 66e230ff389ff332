use std::io::{IsTerminal, stderr};

use tracing_subscriber::{EnvFilter, filter::LevelFilter};

const VARIABLE: &str = "REGATTA_LOG";

/// Who reads the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// A person at a terminal, who is told the rest in plain lines: warnings, as text.
    Person,
    /// Whoever runs a cluster: everything of note, as JSON unless it goes to a terminal.
    Collector,
}

/// Logs go to standard error. `REGATTA_LOG` filters them; one that is no filter is said and left out.
pub(crate) fn install(reader: Reader) {
    let default = if reader == Reader::Person { "warn" } else { "info" };
    let (filter, fault) = match std::env::var(VARIABLE) {
        Ok(text) => match parse(&text) {
            Ok(filter) => (filter, None),
            Err(reason) => (EnvFilter::new(default), Some(reason)),
        },
        Err(_) => (EnvFilter::new(default), None),
    };
    // A reader that is gone is no reason to write elsewhere, and then to fail.
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).log_internal_errors(false);
    match (reader, stderr().is_terminal()) {
        (Reader::Collector, false) => builder.json().flatten_event(true).with_current_span(false).init(),
        (_, terminal) => builder.with_ansi(terminal).init(),
    }
    if let Some(reason) = fault {
        tracing::warn!("{VARIABLE}: {reason}; the log goes on as with `{default}`");
    }
}

/// Reads a filter. A word alone must be a level: taken for a target, a misspelt level would silence everything else.
fn parse(text: &str) -> Result<EnvFilter, String> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    for word in words.filter(|word| !word.contains(['=', '['])) {
        word.parse::<LevelFilter>()
            .map_err(|_| format!("`{word}` is no level; write one (info) or TARGET=LEVEL (regatta=debug)"))?;
    }
    EnvFilter::builder().parse(text).map_err(|error| format!("`{text}` is no filter: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_would_be_silent_is_refused() {
        for good in ["", "info", "WARN", "off", "info,regatta_gateway=debug", "[request]=trace"] {
            assert!(parse(good).is_ok(), "{good}");
        }
        for bad in ["inof", "info,debgu", "regatta=loud", "regatta_gateway"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
