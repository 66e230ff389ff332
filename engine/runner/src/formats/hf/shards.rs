//! Safetensors files of a folder: one, or several with an index.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

use super::HfFolder;
use crate::formats::{FormatError, MappedFile, Tensor};
use crate::weights::WeightType;

const WHOLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const MAX_SHARDS: usize = 4096;
const MAX_INDEX_BYTES: u64 = 16 << 20;
const MAX_HEADER_BYTES: u64 = 16 << 20;

/// The index of a sharded model.
#[derive(Deserialize)]
struct Index {
    /// Tensor name to file name.
    weight_map: BTreeMap<String, String>,
}

/// One mapped file with the bytes of its header.
pub(super) struct Shard {
    pub(super) file: Arc<MappedFile>,
    pub(super) header_bytes: usize,
    pub(super) tensors: BTreeMap<String, Tensor>,
}

/// Maps the files and reads their headers.
pub(super) fn open(folder: &HfFolder) -> Result<Vec<Shard>, FormatError> {
    let Some(index) = folder.read_bounded(INDEX, MAX_INDEX_BYTES)? else {
        return Ok(vec![open_shard(folder, WHOLE, 0)?]);
    };
    let path = folder.path().join(INDEX);
    let malformed = |reason: String| FormatError::Malformed { path: path.clone(), reason };
    let index: Index = serde_json::from_slice(&index).map_err(|error| malformed(error.to_string()))?;
    let names = shard_names(&index).map_err(malformed)?;
    let shards: Vec<Shard> = names
        .iter()
        .enumerate()
        .map(|(number, name)| open_shard(folder, name, number))
        .collect::<Result<_, _>>()?;
    for (tensor, name) in &index.weight_map {
        let shard = &shards[names.iter().position(|other| other == name).expect("collected from this map")];
        if !shard.tensors.contains_key(tensor) {
            return Err(malformed(format!(
                "it puts the tensor `{tensor}` into `{name}`, which does not have it"
            )));
        }
    }
    Ok(shards)
}

/// The shards' names in order; only plain names, so that an index cannot point outside its folder.
fn shard_names(index: &Index) -> Result<Vec<&str>, String> {
    let names: BTreeSet<&str> = index.weight_map.values().map(String::as_str).collect();
    if names.is_empty() || names.len() > MAX_SHARDS {
        return Err(format!("it names {} files, 1 to {MAX_SHARDS} are allowed", names.len()));
    }
    match names.iter().find(|name| name.contains(['/', '\\']) || !name.ends_with(".safetensors")) {
        Some(name) => Err(format!("`{name}` is not the name of a safetensors file in this folder")),
        None => Ok(names.into_iter().collect()),
    }
}

fn open_shard(folder: &HfFolder, name: &str, number: usize) -> Result<Shard, FormatError> {
    let file = MappedFile::open(&folder.path().join(name))?;
    let (header_bytes, tensors) = read_header(&file, number)?;
    Ok(Shard { file: Arc::new(file), header_bytes, tensors })
}

fn read_header(file: &MappedFile, number: usize) -> Result<(usize, BTreeMap<String, Tensor>), FormatError> {
    let bytes = file.bytes();
    let claimed = bytes.first_chunk().map_or(0, |length| u64::from_le_bytes(*length));
    if claimed > MAX_HEADER_BYTES {
        return Err(file.malformed(format!(
            "its header claims {claimed} bytes, at most {MAX_HEADER_BYTES} are allowed"
        )));
    }
    let (header_len, metadata) =
        SafeTensors::read_metadata(bytes).map_err(|error| file.malformed(error.to_string()))?;
    let header_bytes = header_len + size_of::<u64>();
    let mut tensors = BTreeMap::new();
    for (name, info) in metadata.tensors() {
        let ty = weight_type(info.dtype).ok_or_else(|| FormatError::Unsupported {
            path: file.path().to_owned(),
            what: format!("tensor `{name}` of type {:?}", info.dtype),
            supported: "supported in safetensors: F32, F16, BF16".into(),
        })?;
        let (start, end) = info.data_offsets;
        let range = start + header_bytes..end + header_bytes;
        tensors.insert(name, Tensor { file: number, ty, shape: info.shape.clone(), range });
    }
    Ok((header_bytes, tensors))
}

fn weight_type(dtype: Dtype) -> Option<WeightType> {
    match dtype {
        Dtype::F32 => Some(WeightType::F32),
        Dtype::F16 => Some(WeightType::F16),
        Dtype::BF16 => Some(WeightType::BF16),
        _ => None,
    }
}
