use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that SIGTERM or Ctrl-C cancels; a second one ends the process at once.
///
/// # Errors
/// When the system refuses a signal handler.
pub(crate) fn on_signal() -> std::io::Result<CancellationToken> {
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let cancel = token.clone();
    tokio::spawn(async move {
        for last in [false, true] {
            tokio::select! { _ = term.recv() => {}, _ = interrupt.recv() => {} }
            if last {
                std::process::exit(130);
            }
            cancel.cancel();
        }
    });
    Ok(token)
}
