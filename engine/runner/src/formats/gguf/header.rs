//! The header: counts, key-value pairs and the tensor index.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

use super::cursor::Cursor;
use super::metadata::Entries;
use super::types;
use crate::formats::FormatError;
use crate::formats::error::Reason;
use crate::weights::WeightType;

const MAX_METADATA_ENTRIES: u64 = 65_536;
const MAX_TENSORS: u64 = 65_536;
const MAX_NAME_BYTES: u64 = 256;
const MAX_DIMENSIONS: u32 = 4;
const MAX_ALIGNMENT: u64 = 1 << 16;

/// Why a header cannot be used.
#[derive(Debug, PartialEq)]
pub(super) enum HeaderProblem {
    Malformed(Reason),
    Unsupported { what: String, supported: String },
}

impl HeaderProblem {
    pub(super) fn in_file(self, path: &Path) -> FormatError {
        let path = path.to_owned();
        match self {
            Self::Malformed(reason) => FormatError::Malformed { path, reason },
            Self::Unsupported { what, supported } => FormatError::Unsupported { path, what, supported },
        }
    }
}

impl From<Reason> for HeaderProblem {
    fn from(reason: Reason) -> Self {
        Self::Malformed(reason)
    }
}

/// A tensor in the index, checked to lie within the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TensorInfo {
    pub(super) name: String,
    pub(super) ty: WeightType,
    /// Sizes, the slowest dimension first.
    pub(super) shape: Vec<usize>,
    /// Its bytes in the file.
    pub(super) range: Range<usize>,
}

/// What the header says.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) entries: Entries,
    pub(super) tensors: Vec<TensorInfo>,
    pub(super) header_bytes: usize,
}

/// Reads a header from the bytes of a whole file.
pub(super) fn read(bytes: &[u8]) -> Result<Header, HeaderProblem> {
    let mut cursor = Cursor::new(bytes);
    check_version(&mut cursor)?;
    let num_tensors = bounded(cursor.u64("the tensor count")?, MAX_TENSORS, "tensors")?;
    let num_entries = bounded(cursor.u64("the metadata count")?, MAX_METADATA_ENTRIES, "metadata entries")?;
    let entries = Entries::read(bytes, &mut cursor, num_entries)?;
    let mut tensors = Vec::new();
    for _ in 0..num_tensors {
        tensors.push(read_tensor(bytes, &mut cursor)?);
    }
    let header_bytes = cursor.position();
    let alignment = alignment(&entries)?;
    place_tensors(&mut tensors, header_bytes.next_multiple_of(alignment), alignment, bytes.len())?;
    Ok(Header { entries, tensors, header_bytes })
}

fn check_version(cursor: &mut Cursor<'_>) -> Result<(), HeaderProblem> {
    if cursor.array("the magic number")? != *b"GGUF" {
        return Err(HeaderProblem::Malformed("it does not begin with `GGUF`".into()));
    }
    let unsupported = |what: String| HeaderProblem::Unsupported {
        what,
        supported: "convert the model to little-endian GGUF version 2 or 3".into(),
    };
    match cursor.u32("the version")? {
        2 | 3 => Ok(()),
        version if matches!(version.swap_bytes(), 1..=3) => Err(unsupported("a big-endian GGUF file".into())),
        version => Err(unsupported(format!("GGUF version {version}"))),
    }
}

fn bounded(count: u64, max: u64, what: &str) -> Result<u64, Reason> {
    if count <= max { Ok(count) } else { Err(format!("it claims {count} {what}, at most {max} are allowed")) }
}

fn alignment(entries: &Entries) -> Result<usize, Reason> {
    let alignment = entries.unsigned("general.alignment").unwrap_or(32);
    if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
        return Err(format!(
            "`general.alignment` is {alignment}; it must be a power of two of at most {MAX_ALIGNMENT}"
        ));
    }
    Ok(alignment as usize)
}

/// Reads one entry of the index; its range counts from the start of the data until [`place_tensors`].
fn read_tensor(bytes: &[u8], cursor: &mut Cursor<'_>) -> Result<TensorInfo, HeaderProblem> {
    let name = cursor.string(MAX_NAME_BYTES, "a tensor name")?;
    let name = String::from_utf8_lossy(&bytes[name]).into_owned();
    let num_dimensions = cursor.u32("a dimension count")?;
    if num_dimensions == 0 || num_dimensions > MAX_DIMENSIONS {
        let reason =
            format!("tensor `{name}` has {num_dimensions} dimensions, 1 to {MAX_DIMENSIONS} are allowed");
        return Err(HeaderProblem::Malformed(reason));
    }
    let mut shape = Vec::new();
    for _ in 0..num_dimensions {
        shape.push(cursor.u64("a dimension")?);
    }
    shape.reverse();
    let number = cursor.u32("a tensor type")?;
    let ty = types::weight_type(number).ok_or_else(|| unsupported_type(&name, number))?;
    let offset = cursor.u64("a tensor offset")?;
    let size = tensor_bytes(&name, ty, &shape)?;
    let end = offset
        .checked_add(size)
        .and_then(|end| usize::try_from(end).ok())
        .ok_or_else(|| format!("tensor `{name}` ends beyond any file"))?;
    let shape = shape.into_iter().map(|size| size as usize).collect();
    Ok(TensorInfo { name, ty, shape, range: offset as usize..end })
}

fn unsupported_type(name: &str, number: u32) -> HeaderProblem {
    let ty = types::published_name(number).map_or(format!("with number {number}"), str::to_owned);
    HeaderProblem::Unsupported {
        what: format!("tensor `{name}` of type {ty}"),
        supported: format!("supported types: {:?}", WeightType::ALL),
    }
}

fn tensor_bytes(name: &str, ty: WeightType, shape: &[u64]) -> Result<u64, Reason> {
    let elements = shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size));
    let elements = elements.filter(|&elements| elements > 0);
    let columns = shape[shape.len() - 1];
    let (block_len, block_bytes) = (ty.block_len() as u64, ty.block_bytes() as u64);
    match elements {
        Some(elements) if columns.is_multiple_of(block_len) => (elements / block_len)
            .checked_mul(block_bytes)
            .ok_or_else(|| format!("tensor `{name}` of shape {shape:?} is larger than any file")),
        Some(_) => {
            Err(format!("rows of tensor `{name}` have {columns} elements, which is not whole {ty:?} blocks"))
        }
        None => Err(format!("tensor `{name}` has the impossible shape {shape:?}")),
    }
}

/// Turns offsets into places in the file: aligned, within it, one name and one place for each tensor.
fn place_tensors(
    tensors: &mut [TensorInfo],
    data_start: usize,
    alignment: usize,
    file_len: usize,
) -> Result<(), Reason> {
    let data_len = file_len.saturating_sub(data_start);
    let mut names = HashSet::new();
    for tensor in tensors.iter_mut() {
        let TensorInfo { name, range, .. } = tensor;
        if !names.insert(name.clone()) {
            return Err(format!("the tensor `{name}` stands there twice"));
        }
        if !range.start.is_multiple_of(alignment) {
            return Err(format!(
                "tensor `{name}` is at offset {}, not a multiple of {alignment}",
                range.start
            ));
        }
        if range.end > data_len {
            return Err(format!(
                "tensor `{name}` ends at byte {} of the data, which has {data_len} bytes; the file is cut short",
                range.end
            ));
        }
        *range = range.start + data_start..range.end + data_start;
    }
    tensors.sort_by_key(|tensor| tensor.range.start);
    match tensors.windows(2).find(|pair| pair[0].range.end > pair[1].range.start) {
        Some(pair) => Err(format!("the tensors `{}` and `{}` overlap", pair[0].name, pair[1].name)),
        None => Ok(()),
    }
}
