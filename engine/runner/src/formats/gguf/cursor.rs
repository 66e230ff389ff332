//! A reader over bytes that never passes their end.

use std::ops::Range;

use crate::formats::error::Reason;

/// Little-endian values, one after the other.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Steps over `len` bytes and says where they are.
    pub(super) fn skip(&mut self, len: u64, what: &str) -> Result<Range<usize>, Reason> {
        match usize::try_from(len) {
            Ok(len) if len <= self.remaining() => {
                let range = self.at..self.at + len;
                self.at = range.end;
                Ok(range)
            }
            _ => Err(format!("{what} at byte {} needs {len} bytes, {} are left", self.at, self.remaining())),
        }
    }

    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Reason> {
        let range = self.skip(N as u64, what)?;
        let mut value = [0; N];
        value.copy_from_slice(&self.bytes[range]);
        Ok(value)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, Reason> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, Reason> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A string with its length before it, at most `max` bytes of UTF-8; where it is.
    pub(super) fn string(&mut self, max: u64, what: &str) -> Result<Range<usize>, Reason> {
        let at = self.at;
        let len = self.u64(what)?;
        if len > max {
            return Err(format!("{what} at byte {at} claims {len} bytes, at most {max} are allowed"));
        }
        let range = self.skip(len, what)?;
        match std::str::from_utf8(&self.bytes[range.clone()]) {
            Ok(_) => Ok(range),
            Err(_) => Err(format!("{what} at byte {at} is not UTF-8")),
        }
    }
}
