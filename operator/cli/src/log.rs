use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Logs go to standard error: as text for people, as JSON for collectors. `REGATTA_LOG` filters them.
pub(crate) fn install() {
    let filter = EnvFilter::try_from_env("REGATTA_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if std::io::stderr().is_terminal() {
        builder.init();
    } else {
        builder.json().flatten_event(true).init();
    }
}
