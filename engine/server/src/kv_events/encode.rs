//! vLLM's message layout: MessagePack arrays.

use regatta_core::kv::{BlockHash, KvEvent, KvGroup};
use serde::{Serialize, Serializer};

use super::KvEventBatch;

/// Where blocks are, in the words of routers: the first tier, whatever device it is.
const MEDIUM: &str = "GPU";

/// `[timestamp, events, rank]`, each event an array that begins with its name.
pub(super) fn encode(batch: &KvEventBatch) -> Result<Vec<u8>, rmp_serde::encode::Error> {
    let events: Vec<WireEvent<'_>> = batch.events.iter().map(|event| WireEvent { batch, event }).collect();
    rmp_serde::to_vec(&(batch.timestamp, events, 0u32))
}

/// A hash as a number: the last eight of its bytes, the first of them the most significant.
pub(super) fn number(hash: &BlockHash) -> u64 {
    hash.0[24..].iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

struct WireEvent<'a> {
    batch: &'a KvEventBatch,
    event: &'a KvEvent,
}

impl Serialize for WireEvent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.event {
            KvEvent::Stored { group, parent, hashes, token_ids, cache_salt } => {
                let hashes: Vec<u64> = hashes.iter().map(number).collect();
                let (kind, window) = match self.batch.kv_groups.as_slice().get(usize::from(*group)) {
                    Some(KvGroup::SlidingWindow { window }) => ("sliding_window", Some(*window)),
                    _ => ("full_attention", None),
                };
                // The salt is a key of the first block, and of the others through their parents.
                let salt = cache_salt.as_deref().filter(|_| parent.is_none()).map(|salt| (salt,));
                let extra_keys: Vec<Option<(&str,)>> =
                    (0..hashes.len()).map(|index| salt.filter(|_| index == 0)).collect();
                let adapter: (Option<u32>, Option<&str>) = (None, None);
                let block_size = self.batch.block_size;
                (
                    "BlockStored",
                    &hashes,
                    parent.as_ref().map(number),
                    token_ids,
                    block_size,
                    adapter.0,
                    MEDIUM,
                    adapter.1,
                    extra_keys,
                    group,
                    kind,
                    window,
                )
                    .serialize(serializer)
            }
            KvEvent::Removed { group, hash } => {
                ("BlockRemoved", [number(hash)], MEDIUM, group).serialize(serializer)
            }
            KvEvent::Cleared => ("AllBlocksCleared",).serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use regatta_core::kv::KvGroups;

    use super::*;

    #[test]
    fn a_hash_is_known_by_its_last_eight_bytes() {
        let mut hash = BlockHash([9; 32]);
        hash.0[24..].copy_from_slice(&[0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(number(&hash), 258);
    }

    #[test]
    fn bytes_are_those_of_messagepack() {
        let events = vec![KvEvent::Cleared];
        let batch = KvEventBatch { timestamp: 1.0, block_size: 16, kv_groups: KvGroups::FULL, events };
        let mut expected = vec![0x93, 0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0x91, 0x91, 0xb0];
        expected.extend(b"AllBlocksCleared");
        expected.push(0);
        assert_eq!(encode(&batch).unwrap(), expected);
    }
}
