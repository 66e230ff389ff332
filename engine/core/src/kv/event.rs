//! What became findable in the prefix cache and what no longer is, for those who route by it.

use std::sync::Arc;

use super::BlockHash;

/// A change of what the prefix cache holds. Applied in order from an empty cache, they give what can be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvEvent {
    /// Blocks of one group, each the next of the one before it.
    Stored {
        /// Place among the groups of layers.
        group: u8,
        /// The block before them; absent: they begin a sequence.
        parent: Option<BlockHash>,
        /// In order.
        hashes: Vec<BlockHash>,
        /// The tokens of all of them.
        token_ids: Vec<u32>,
        /// See [`NewSequence::cache_salt`](crate::scheduler::NewSequence::cache_salt).
        cache_salt: Option<Arc<str>>,
    },
    /// A block whose place was needed.
    Removed {
        /// Its group.
        group: u8,
        /// Which.
        hash: BlockHash,
    },
    /// All blocks of all groups.
    Cleared,
}

/// What is told of a block that becomes findable.
pub(crate) struct BlockContent {
    pub(crate) parent: Option<BlockHash>,
    pub(crate) token_ids: Vec<u32>,
    pub(crate) cache_salt: Option<Arc<str>>,
}

/// Appends a block to the latest event where it goes on with that one's last block.
pub(super) fn push_stored(events: &mut Vec<KvEvent>, of: u8, hash: BlockHash, content: BlockContent) {
    if let Some(KvEvent::Stored { group, hashes, token_ids, .. }) = events.last_mut()
        && *group == of
        && hashes.last() == content.parent.as_ref()
    {
        hashes.push(hash);
        token_ids.extend(content.token_ids);
        return;
    }
    let BlockContent { parent, token_ids, cache_salt } = content;
    events.push(KvEvent::Stored { group: of, parent, hashes: vec![hash], token_ids, cache_salt });
}
