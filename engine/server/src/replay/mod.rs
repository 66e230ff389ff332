//! `regatta-engine replay`: a recorded schedule again, without the model, and why each step was what it was.

mod end;
mod history;
mod reader;
mod report;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::PathBuf;

use regatta_core::replay::{HeaderError, ReplayError, Replayer, ScheduleRecord};
use regatta_core::sequence::SequenceId;

pub use reader::ReadError;

use end::End;
use history::History;
use reader::Reader;
use report::{Report, Summary};

use crate::input::{self, Name};

/// How the answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// What is asked about a record.
#[derive(Clone, Debug)]
pub struct ReplaySettings {
    /// The record; `-`: standard input.
    pub file: PathBuf,
    /// Explain this step.
    pub step: Option<u64>,
    /// Tell this sequence's life.
    pub sequence: Option<u64>,
    /// How the answer is written.
    pub format: Format,
}

/// A record that cannot be replayed to its end.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// It cannot be read.
    #[error("{}: {cause}", Name(file))]
    Read {
        /// The record.
        file: PathBuf,
        /// What is wrong.
        cause: ReadError,
    },
    /// Its first line asks for what cannot be.
    #[error("{}: line 1: {cause}", Name(file))]
    Header {
        /// The record.
        file: PathBuf,
        /// What is wrong.
        cause: HeaderError,
    },
    /// A line does not lead to what it says.
    #[error("{}: line {line}: {cause}{}", Name(file), written_by(engine))]
    Replay {
        /// The record.
        file: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// Version of the engine that wrote it.
        engine: String,
        /// What is wrong.
        cause: ReplayError,
    },
    /// There is no such step or sequence.
    #[error("{}: {what}", Name(file))]
    Absent {
        /// The record.
        file: PathBuf,
        /// What was asked for and what there is.
        what: String,
    },
    /// The answer cannot be written.
    #[error("cannot write the answer")]
    Output(#[from] std::io::Error),
}

fn written_by(engine: &str) -> String {
    let this = env!("CARGO_PKG_VERSION");
    if engine == this {
        return String::new();
    }
    let shown: String = engine.chars().filter(|c| !c.is_control()).take(40).collect();
    format!(" (written by engine {shown}, replayed by {this})")
}

/// Replays the record and writes to `out` what was asked for; the answer comes as far as the record does, before any
/// error about what follows.
///
/// # Errors
/// See [`RecordError`].
pub fn run(settings: &ReplaySettings, out: &mut dyn Write) -> Result<(), RecordError> {
    let mut report = None;
    let replayed = replay(settings, &mut report);
    if let Some(report) = report {
        let absent = report.absent(settings);
        report.write(settings, out)?;
        replayed?;
        if let Some(what) = absent {
            return Err(RecordError::Absent { file: settings.file.clone(), what });
        }
        return Ok(());
    }
    replayed
}

fn replay(settings: &ReplaySettings, report: &mut Option<Report>) -> Result<(), RecordError> {
    let file = &settings.file;
    let read = |cause| RecordError::Read { file: file.clone(), cause };
    let mut reader = Reader::new(input::open(file).map_err(|error| read(error.into()))?);
    let header = reader.header().map_err(read)?;
    let mut replayer =
        Replayer::new(&header).map_err(|cause| RecordError::Header { file: file.clone(), cause })?;
    let sequence = settings.sequence.map(SequenceId);
    let report = report.insert(Report {
        summary: Summary::new(&header),
        step: None,
        history: sequence.map(History::new),
    });
    while let Some(record) = reader.record().map_err(read)? {
        if record == ScheduleRecord::End {
            report.summary.complete = true;
        }
        if let ScheduleRecord::Add(added) = &record {
            report.summary.added(added.id);
            report.history.iter_mut().for_each(|history| history.added(added, replayer.stats().steps));
        }
        let planned = replayer.apply(record).map_err(|cause| {
            let (line, engine) = (reader.line_number(), header.engine.clone());
            RecordError::Replay { file: file.clone(), line, engine, cause }
        })?;
        report.summary.counted(replayer.stats());
        let steps = replayer.stats().steps;
        for update in replayer.updates() {
            let Some(end) = End::of(&update.event, replayer.cancel_reason(update.id)) else { continue };
            report.summary.ended(end);
            report.history.iter_mut().for_each(|history| history.ended(update.id, end, steps));
        }
        if let Some(planned) = planned {
            report.summary.planned(&planned);
            report.history.iter_mut().for_each(|history| history.planned(&planned));
            if settings.step == Some(planned.step) {
                report.step = Some(planned);
            }
        }
    }
    Ok(())
}
