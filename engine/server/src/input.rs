//! Files that are read, of which `-` is standard input.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

const BUFFER_BYTES: usize = 1 << 18;
const STANDARD_INPUT: &str = "-";

/// Opens what a command line names.
pub(crate) fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    if path == Path::new(STANDARD_INPUT) {
        return Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, io::stdin())));
    }
    Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, File::open(path)?)))
}

/// What a command line names, for texts.
pub(crate) struct Name<'a>(pub(crate) &'a Path);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == Path::new(STANDARD_INPUT) {
            f.write_str("standard input")
        } else {
            self.0.display().fmt(f)
        }
    }
}
