//! The log: to standard error, filtered by `REGATTA_LOG`.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::{EnvFilter, filter::LevelFilter};

const VARIABLE: &str = "REGATTA_LOG";

/// The ZeroMQ library tells each connection.
const DEFAULT: &str = "info,zeromq=warn";

/// Begins to log. A value of `REGATTA_LOG` that is no filter is said and left out.
pub fn install() {
    let (filter, fault) = match std::env::var(VARIABLE) {
        Ok(text) => match parse(&text) {
            Ok(filter) => (filter, None),
            Err(reason) => (EnvFilter::new(DEFAULT), Some(reason)),
        },
        Err(_) => (EnvFilter::new(DEFAULT), None),
    };
    tracing_subscriber::fmt()
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .with_env_filter(filter)
        // A reader that is gone is no reason to write elsewhere, and then to fail.
        .log_internal_errors(false)
        .init();
    if let Some(reason) = fault {
        tracing::warn!("{VARIABLE}: {reason}; the log goes on as with `{DEFAULT}`");
    }
}

/// Reads a filter. A word alone must be a level: taken for a target, a misspelt level would silence everything else.
fn parse(text: &str) -> Result<EnvFilter, String> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    for word in words.filter(|word| !word.contains(['=', '['])) {
        word.parse::<LevelFilter>().map_err(|_| {
            format!("`{word}` is no level; write one (info) or TARGET=LEVEL (regatta_engine=debug)")
        })?;
    }
    EnvFilter::builder().parse(text).map_err(|error| format!("`{text}` is no filter: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_would_be_silent_is_refused() {
        for good in [DEFAULT, "", "info", "WARN", "off", "info,regatta_engine=debug", "[request]=trace"] {
            assert!(parse(good).is_ok(), "{good}");
        }
        for bad in ["inof", "info,debgu", "regatta=loud", "regatta_engine"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
