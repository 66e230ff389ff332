//! The end: nothing new, what is in flight finishes, then the process goes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{ServeError, signals::Signals};
use crate::{engine::EngineThread, http::ServerState};

/// How long answers that are complete get to reach their clients, beyond the deadline.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_PERIOD: Duration = Duration::from_millis(10);

/// Finishes what is in flight within `timeout`; what is left then ends with `abort`.
///
/// # Errors
/// [`ServeError::Forced`] on another signal.
pub(super) async fn drain(
    server: &Arc<ServerState>,
    thread: EngineThread,
    timeout: Duration,
    signals: &mut Signals,
) -> Result<(), ServeError> {
    server.terminate();
    let deadline = Instant::now() + timeout;
    let finished = async {
        // Joined once the last sequence has ended, by itself or by the deadline.
        if let Err(panic) = tokio::task::spawn_blocking(move || thread.shutdown(deadline)).await {
            tracing::error!(%panic, "the engine thread could not be joined");
        }
        let flushed = deadline.max(Instant::now()) + FLUSH_TIMEOUT;
        while server.num_in_flight() > 0 && Instant::now() < flushed {
            tokio::time::sleep(POLL_PERIOD).await;
        }
    };
    tokio::select! {
        () = finished => {
            tracing::info!(num_in_flight = server.num_in_flight(), "stopped");
            Ok(())
        }
        _ = signals.next() => Err(ServeError::Forced { num_in_flight: server.num_in_flight() }),
    }
}
