//! The thread that owns the file.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};

use regatta_core::replay::{Header, Observation, Recorder, ScheduleRecord};
use serde::Serialize;

/// Where a recording ends by itself.
const MAX_BYTES: u64 = 8 << 30;

/// Turns observations into lines.
pub(super) struct Writer<W: Write> {
    file: BufWriter<W>,
    header: Header,
    recorder: Recorder,
    incomplete: Arc<AtomicBool>,
    num_bytes: u64,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(file: W, header: &Header, incomplete: Arc<AtomicBool>) -> Self {
        Self {
            file: BufWriter::with_capacity(1 << 18, file),
            header: header.clone(),
            recorder: Recorder::new(random_key()),
            incomplete,
            num_bytes: 0,
        }
    }

    /// Writes until the other end is dropped.
    pub(super) fn run(mut self, observations: &Receiver<Observation>) -> io::Result<()> {
        let header = self.header.clone();
        self.line(&header)?;
        while let Some(observation) = self.next(observations)? {
            let record = self.recorder.record(observation);
            self.line(&record)?;
        }
        if !self.incomplete.load(Ordering::Acquire) {
            self.line(&ScheduleRecord::End)?;
        }
        self.file.flush()
    }

    /// The next observation. Whoever looks at the file while nothing happens finds all of it.
    fn next(&mut self, observations: &Receiver<Observation>) -> io::Result<Option<Observation>> {
        match observations.try_recv() {
            Ok(observation) => Ok(Some(observation)),
            Err(TryRecvError::Disconnected) => Ok(None),
            Err(TryRecvError::Empty) => {
                self.file.flush()?;
                Ok(observations.recv().ok())
            }
        }
    }

    fn line(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.num_bytes += line.len() as u64;
        if self.num_bytes > MAX_BYTES {
            return Err(io::Error::other(format!("the file has reached {} GiB", MAX_BYTES >> 30)));
        }
        self.file.write_all(&line)
    }
}

/// 244 random bits.
fn random_key() -> [u8; 32] {
    let mut key = [0; 32];
    key[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    key[16..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    key
}
