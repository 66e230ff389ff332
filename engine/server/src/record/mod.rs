//! `--record-schedule`: what the engine thread does with its scheduler, as JSON lines in a file.
//!
//! The engine thread never waits for the disk. It hands observations to a writer thread over a bounded queue; when
//! that is full, or writing fails, the recording ends with one line in the log and the engine goes on.

mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use regatta_core::replay::{FORMAT_VERSION, Header, Observation};
use regatta_core::runner::RunnerLimits;
use regatta_core::scheduler::SchedulerConfig;

/// Observations that wait for the disk.
const QUEUE_LEN: usize = 4096;
/// How long the end of the file is waited for.
const GRACE: Duration = Duration::from_secs(5);

/// The engine thread's end of a recording; dropping it completes the file.
#[derive(Debug, Default)]
pub(crate) struct Recording(Option<Active>);

#[derive(Debug)]
struct Active {
    path: PathBuf,
    /// Absent once the recording has ended.
    sender: Option<SyncSender<Observation>>,
    /// Set when an observation is lost.
    incomplete: Arc<AtomicBool>,
    done: Receiver<()>,
    writer: Option<JoinHandle<()>>,
}

impl Recording {
    /// Starts a recording into the file at `path`, which is overwritten. Without a path, none.
    pub(crate) fn start(
        path: Option<&Path>,
        config: &SchedulerConfig,
        limits: RunnerLimits,
    ) -> io::Result<Self> {
        let Some(path) = path else { return Ok(Self(None)) };
        let header = Header {
            regatta_schedule: FORMAT_VERSION,
            engine: env!("CARGO_PKG_VERSION").to_owned(),
            config: config.clone(),
            limits,
        };
        let file = std::fs::File::create(path).map_err(|error| {
            io::Error::new(error.kind(), format!("--record-schedule {}: {error}", path.display()))
        })?;
        Self::into(path, file, &header)
    }

    fn into(path: &Path, file: impl io::Write + Send + 'static, header: &Header) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(QUEUE_LEN);
        let (finished, done) = sync_channel(1);
        let incomplete = Arc::new(AtomicBool::new(false));
        let task = writer::Writer::new(file, header, Arc::clone(&incomplete));
        let name = path.to_owned();
        let writer = std::thread::Builder::new().name("recorder".to_owned()).spawn(move || {
            if let Err(error) = task.run(&receiver) {
                tracing::error!("recording the schedule to {} ended early: {error}", name.display());
            }
            let _ = finished.try_send(());
        })?;
        let sender = Some(sender);
        Ok(Self(Some(Active { path: path.to_owned(), sender, incomplete, done, writer: Some(writer) })))
    }

    /// Notes what has just happened; costs nothing when nobody records.
    pub(crate) fn see(&mut self, observation: impl FnOnce() -> Observation) {
        let Some(Active { path, sender, incomplete, .. }) = &mut self.0 else { return };
        let Some(open) = sender else { return };
        match open.try_send(observation()) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                incomplete.store(true, Ordering::Release);
                tracing::error!(
                    "recording the schedule to {} ended early: the disk is slower than the engine",
                    path.display()
                );
                *sender = None;
            }
            // The writer has said why.
            Err(TrySendError::Disconnected(_)) => *sender = None,
        }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.sender = None;
        if self.done.recv_timeout(GRACE).is_err() {
            tracing::error!(
                "{}: the disk does not answer; the end of the recording is lost",
                self.path.display()
            );
        } else if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

#[cfg(test)]
mod tests;
