//! `regatta-engine serve`: from settings to a running server, and from a signal to a clean end.
//!
//! Listening comes before loading, so that `/livez` answers while a large model is being read; signals are caught
//! before either.

mod accelerator;
mod capacity;
mod drain;
mod load;
mod pod_info;
mod signals;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::{accelerator::AcceleratorError, load::StartError};
use self::{drain::drain, signals::Signals};
use crate::{
    args::ServeSettings,
    http::{self, ListenError, ServerState},
    kv_events::{self, KvEventSender, KvEventsError},
};

/// How often the engine thread is looked after.
const WATCH_PERIOD: Duration = Duration::from_millis(250);

/// Exit code when another start would end the same way; clap's own for a command line that it refuses.
pub const REFUSED_EXIT_CODE: u8 = 2;

/// Why serving ended, other than by a signal and in peace.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The pod has a device that this engine cannot use.
    #[error(transparent)]
    Accelerator(#[from] AcceleratorError),
    /// A port or address cannot be used.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// KV events cannot be published.
    #[error(transparent)]
    KvEvents(#[from] KvEventsError),
    /// The model cannot be served.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The engine thread is gone while it was needed.
    #[error("the engine thread has ended unexpectedly; the log above says why")]
    EngineEnded,
    /// The operating system refused something.
    #[error("{what}: {cause}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The refusal.
        cause: std::io::Error,
    },
    /// A second signal came before requests in flight were done.
    #[error("a second signal ended the process with {num_in_flight} requests in flight")]
    Forced {
        /// Requests that lost their answer.
        num_in_flight: usize,
    },
}

impl ServeError {
    /// Whether another start with the same settings would end the same way.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Accelerator(_) => true,
            Self::Start(error) => error.is_permanent(),
            Self::Listen(_)
            | Self::KvEvents(_)
            | Self::EngineEnded
            | Self::System { .. }
            | Self::Forced { .. } => false,
        }
    }
}

/// Serves until a signal says to stop.
///
/// # Errors
/// See [`ServeError`]. After the first signal and a clean end there is none.
pub async fn serve(settings: ServeSettings) -> Result<(), ServeError> {
    let mut signals =
        Signals::install().map_err(|cause| ServeError::System { what: "cannot catch signals", cause })?;
    accelerator::check(std::env::var("REGATTA_ACCELERATOR").ok().as_deref())?;
    let server = Arc::new(ServerState::new(&settings));
    let background = Background::start(&settings, &server).await?;
    let result = load_and_run(settings, &server, &mut signals, &background).await;
    if !matches!(result, Err(ServeError::Forced { .. })) {
        background.stop().await;
    }
    result
}

async fn load_and_run(
    settings: ServeSettings,
    server: &Arc<ServerState>,
    signals: &mut Signals,
    background: &Background,
) -> Result<(), ServeError> {
    let shutdown_timeout = settings.shutdown_timeout;
    let kv_events = background.kv_events.clone();
    let loading = tokio::task::spawn_blocking(move || load::load(&settings, kv_events));
    let started = tokio::select! {
        loaded = loading => loaded.map_err(|panic| StartError::Panicked(panic.to_string()))??,
        signal = signals.next() => {
            tracing::info!(signal, "stopped while loading");
            return Ok(());
        }
    };
    tracing::info!(address = %background.address, "{}", started.summary);
    server.serve_model(started.model);
    tokio::select! {
        () = engine_ended(server) => Err(ServeError::EngineEnded),
        signal = signals.next() => {
            tracing::info!(signal, num_in_flight = server.num_in_flight(), "stopping");
            drain(server, started.thread, shutdown_timeout, signals).await
        }
    }
}

async fn engine_ended(server: &ServerState) {
    while server.loaded().is_some_and(|model| !model.is_dead()) {
        tokio::time::sleep(WATCH_PERIOD).await;
    }
}

/// Tasks that live as long as the server.
struct Background {
    tasks: TaskTracker,
    stop: CancellationToken,
    address: SocketAddr,
    kv_events: Option<KvEventSender>,
}

impl Background {
    async fn start(settings: &ServeSettings, server: &Arc<ServerState>) -> Result<Self, ServeError> {
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let listener = http::bind(settings.address, "--port").await?;
        let address = listener.local_addr().unwrap_or(settings.address);
        if let Some(internal_address) = settings.internal_address {
            let internal = http::bind(internal_address, "--internal-port").await?;
            tasks.spawn(http::serve(internal, http::internal_router(server), stop.clone()));
        }
        tasks.spawn(http::serve(listener, http::router(server, &settings.api_keys), stop.clone()));
        if let Some(folder) = settings.pod_info.clone() {
            tasks.spawn(watch_pod(folder, Arc::clone(server), stop.clone()));
        }
        let kv_events = match &settings.kv_events {
            Some(config) => Some(kv_events::start(config, &tasks, &stop).await?),
            None => None,
        };
        tasks.close();
        Ok(Self { tasks, stop, address, kv_events })
    }

    async fn stop(self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

async fn watch_pod(folder: PathBuf, server: Arc<ServerState>, stop: CancellationToken) {
    tokio::select! {
        () = pod_info::watch(&folder, |draining| server.set_draining(draining)) => {}
        () = stop.cancelled() => {}
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use regatta_runner::{
        backend::{BackendError, cpu::CpuError},
        formats::FormatError,
        load::LoadError,
        model::ModelError,
    };

    use super::*;
    use crate::{fetch::FetchError, text::TextError};

    /// As `main` prints it: with all its sources.
    fn printed(error: impl Into<ServeError>) -> String {
        format!("{:#}", anyhow::Error::new(error.into()))
    }

    #[test]
    fn no_error_tells_its_cause_twice() {
        let cause = || io::Error::other("the disk burns");
        let path = || PathBuf::from("/models/m");
        let format = || FormatError::Io { path: path(), cause: cause() };
        let unsupported = BackendError::Unsupported { name: "w".into(), reason: "the disk burns".into() };
        let errors = [
            printed(ServeError::System { what: "cannot catch signals", cause: cause() }),
            printed(StartError::Checksum(FetchError::File { path: path(), cause: cause() })),
            printed(StartError::Load(LoadError::Format(format()).into())),
            printed(StartError::Load(LoadError::Model(ModelError::Format(format())).into())),
            printed(StartError::Load(
                LoadError::Model(ModelError::Backend { path: path(), cause: unsupported }).into(),
            )),
            printed(StartError::Load(
                LoadError::Cpu(CpuError::Threads { threads: 2, cause: cause() }).into(),
            )),
            printed(StartError::Text(TextError::Format(format()))),
            printed(StartError::Thread(cause())),
        ];
        for error in errors {
            assert_eq!(error.matches("the disk burns").count(), 1, "{error}");
        }
    }

    #[tokio::test]
    async fn a_refused_address_is_told_once() {
        let taken = http::bind(([127, 0, 0, 1], 0).into(), "--port").await.unwrap();
        let error = printed(http::bind(taken.local_addr().unwrap(), "--port").await.unwrap_err());
        assert_eq!(error.matches("in use").count(), 1, "{error}");
    }
}
