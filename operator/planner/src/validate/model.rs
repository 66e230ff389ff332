//! Where the weights are and what the model is called.

use std::collections::HashSet;

use super::{Place, SpecError};

/// Where the weights are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelSource {
    /// A file or folder on a PersistentVolumeClaim.
    Claim {
        /// Name of the claim.
        claim: String,
        /// Path in it, without a leading slash.
        path: String,
    },
    /// A file that each pod downloads.
    Http {
        /// The address.
        uri: String,
        /// Its last path segment.
        file: String,
    },
    /// A file or folder of this machine.
    File {
        /// Absolute path.
        path: String,
    },
}

pub(super) fn source(uri: &str, place: Place) -> Result<ModelSource, SpecError> {
    let problem = |problem| SpecError::Uri { uri: uri.to_owned(), problem };
    let Some((scheme, rest)) = uri.split_once("://") else { return Err(SpecError::Scheme(uri.to_owned())) };
    if rest.split('/').any(|s| s == "." || s == "..")
        || uri.contains(|c: char| c.is_whitespace() || c == '\\')
    {
        return Err(problem("must not hold spaces, backslashes or the path segments '.' and '..'"));
    }
    match scheme {
        "pvc" => {
            let named =
                rest.split_once('/').filter(|(c, p)| !c.is_empty() && !p.trim_matches('/').is_empty());
            let (claim, path) = named.ok_or_else(|| {
                problem("must name a claim and a path in it, as in pvc://my-claim/model.gguf")
            })?;
            Ok(ModelSource::Claim { claim: claim.into(), path: path.trim_start_matches('/').into() })
        }
        "http" | "https" => {
            let file = file_name(rest).ok_or_else(|| {
                problem("must name one file on a host, without user, password or fragment, as in https://host/model.gguf")
            })?;
            Ok(ModelSource::Http { uri: uri.into(), file })
        }
        "file" if !rest.starts_with('/') => {
            Err(problem("must hold an absolute path after file://, as in file:///models/model.gguf"))
        }
        "file" if place == Place::Local => Ok(ModelSource::File { path: rest.into() }),
        "file" => Err(SpecError::FileInCluster(uri.to_owned())),
        _ => Err(SpecError::Scheme(uri.to_owned())),
    }
}

/// The last path segment of `host/path?query`, if it is a plain file name.
fn file_name(rest: &str) -> Option<String> {
    let path = rest.split_once('?').map_or(rest, |(path, _)| path);
    let (host, path) = path.split_once('/')?;
    let file = path.rsplit('/').next()?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-+._".contains(&b);
    let fits = !host.is_empty() && !host.contains('@') && !rest.contains('#');
    let named = file.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') && file.bytes().all(plain);
    (fits && named).then(|| file.to_owned())
}

pub(super) fn sha256(sha256: Option<&str>, source: &ModelSource) -> Result<Option<String>, SpecError> {
    let Some(sha256) = sha256 else { return Ok(None) };
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if sha256.len() != 64 || !sha256.bytes().all(hex) {
        return Err(SpecError::Sha256);
    }
    match source {
        ModelSource::Claim { path, .. } | ModelSource::File { path } if path.ends_with('/') => {
            Err(SpecError::Sha256OfFolder)
        }
        _ => Ok(Some(sha256.to_owned())),
    }
}

pub(super) fn served_names(names: Option<&[String]>, default: &str) -> Result<Vec<String>, SpecError> {
    let Some(names) = names else { return Ok(vec![default.to_owned()]) };
    if names.is_empty() || names.iter().any(String::is_empty) {
        return Err(SpecError::EmptyServedName);
    }
    let mut seen = HashSet::new();
    match names.iter().find(|n| !seen.insert(*n)) {
        Some(twice) => Err(SpecError::DuplicateServedName(twice.clone())),
        None => Ok(names.to_vec()),
    }
}
