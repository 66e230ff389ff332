//! Lines of a record, read one at a time and never more of one than there should be.

use std::io::{self, BufRead, Read};

use regatta_core::replay::{Header, ScheduleRecord};
use serde::de::DeserializeOwned;

/// Longest line: a prompt of the longest sequence takes less.
const MAX_LINE_BYTES: u64 = 256 << 20;
/// Longest first line.
const MAX_HEADER_BYTES: u64 = 64 << 10;

/// A file that is no record, or not a whole one.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file itself.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Something else.
    #[error("not a recorded schedule ({0}); `serve --record-schedule FILE` writes one")]
    NotARecord(String),
    /// A line too long to be meant.
    #[error("line {line} is longer than {max} bytes; the file is damaged")]
    LongLine {
        /// From 1.
        line: usize,
        /// The bound.
        max: u64,
    },
    /// A line that is none of ours.
    #[error("line {line}: {reason}; the file is damaged")]
    Line {
        /// From 1.
        line: usize,
        /// What JSON says.
        reason: String,
    },
    /// The last line has no end.
    #[error(
        "line {line} is cut off: the recording still runs, or it was ended by a full disk or a killed process; what \
         comes before is whole"
    )]
    CutOff {
        /// From 1.
        line: usize,
    },
}

pub(super) struct Reader<R> {
    source: R,
    line: Vec<u8>,
    number: usize,
}

impl<R: BufRead> Reader<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, line: Vec::new(), number: 0 }
    }

    /// The first line.
    pub(super) fn header(&mut self) -> Result<Header, ReadError> {
        match self.next(MAX_HEADER_BYTES) {
            Ok(Some(header)) => Ok(header),
            Ok(None) => Err(ReadError::NotARecord("it is empty".into())),
            Err(ReadError::Io(error)) => Err(error.into()),
            Err(ReadError::Line { reason, .. }) => Err(ReadError::NotARecord(reason)),
            Err(error) => Err(ReadError::NotARecord(error.to_string())),
        }
    }

    /// The next record; `None` at the end.
    pub(super) fn record(&mut self) -> Result<Option<ScheduleRecord>, ReadError> {
        self.next(MAX_LINE_BYTES)
    }

    /// Of the line read last, from 1.
    pub(super) fn line_number(&self) -> usize {
        self.number
    }

    fn next<T: DeserializeOwned>(&mut self, max: u64) -> Result<Option<T>, ReadError> {
        self.line.clear();
        let num_bytes = self.source.by_ref().take(max + 1).read_until(b'\n', &mut self.line)? as u64;
        if num_bytes == 0 {
            return Ok(None);
        }
        self.number += 1;
        let line = self.number;
        if num_bytes > max {
            return Err(ReadError::LongLine { line, max });
        }
        if self.line.last() != Some(&b'\n') {
            return Err(ReadError::CutOff { line });
        }
        match serde_json::from_slice(&self.line) {
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(ReadError::Line { line, reason: error.to_string() }),
        }
    }
}
