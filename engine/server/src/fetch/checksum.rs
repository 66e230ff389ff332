//! SHA-256 of files.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::FetchError;

const READ_BYTES: usize = 1 << 20;

/// A SHA-256 checksum, written as 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sha256Hex([u8; 32]);

impl Sha256Hex {
    /// Reads 64 hexadecimal digits of either case.
    pub(super) fn parse(text: &str) -> Result<Self, FetchError> {
        let invalid = || FetchError::InvalidChecksum(text.chars().take(80).collect());
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(invalid());
        }
        for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| invalid())?;
        }
        Ok(Self(bytes))
    }

    /// The checksum of all that `hasher` has seen.
    pub(super) fn of(hasher: &Sha256) -> Self {
        Self(hasher.clone().finalize().into())
    }
}

impl fmt::Display for Sha256Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Checks that the file at `path` has the SHA-256 checksum `sha256` (64 hexadecimal digits).
pub fn verify_sha256(path: &Path, sha256: &str) -> Result<(), FetchError> {
    let expected = Sha256Hex::parse(sha256)?;
    let found = of_file(path)?;
    if found == expected {
        return Ok(());
    }
    let (expected, found) = (expected.to_string(), found.to_string());
    Err(FetchError::Checksum { subject: path.display().to_string(), expected, found })
}

/// The checksum of the file at `path`.
pub(super) fn of_file(path: &Path) -> Result<Sha256Hex, FetchError> {
    let failed = |error| FetchError::file(path, error);
    let mut file = File::open(path).map_err(failed)?;
    let (hasher, _) = hash_rest(&mut file).map_err(failed)?;
    Ok(Sha256Hex::of(&hasher))
}

/// Hashes from where `file` stands to its end; also says how many bytes that were.
pub(super) fn hash_rest(file: &mut File) -> std::io::Result<(Sha256, u64)> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; READ_BYTES];
    let mut num_bytes = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((hasher, num_bytes)),
            n => {
                hasher.update(&buffer[..n]);
                num_bytes += n as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 180-2, appendix B.1: the digest of `abc`.
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_file_is_held_to_its_checksum() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        verify_sha256(file.path(), ABC).unwrap();
        verify_sha256(file.path(), &ABC.to_uppercase()).unwrap();
        let error = verify_sha256(file.path(), &"0".repeat(64)).unwrap_err().to_string();
        assert!(error.contains(ABC) && error.contains(&*file.path().to_string_lossy()), "{error}");
    }

    #[test]
    fn what_is_no_checksum_is_refused_before_anything_is_read() {
        for text in ["", "abc", &ABC[1..], &"g".repeat(64), &"é".repeat(32)] {
            let refused = verify_sha256(Path::new("/nonexistent"), text);
            assert!(matches!(refused, Err(FetchError::InvalidChecksum(_))), "{text}");
        }
    }
}
