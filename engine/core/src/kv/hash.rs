//! Names for the content of full blocks.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Names a full block by its tokens and all that came before them: SHA-256 over the hash of the block before and
/// the block's token ids (little-endian). Equal on every machine and in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BlockHash(pub [u8; 32]);

impl BlockHash {
    /// Where the chains of one model begin. `identity` tells apart what must never share KV.
    pub fn root(identity: &str) -> Self {
        Self(Sha256::new().chain_update(b"regatta kv block\0").chain_update(identity).finalize().into())
    }

    /// Where the chains of sequences with this salt begin: they share nothing with those of another.
    pub fn salted(&self, cache_salt: &str) -> Self {
        let prefix = Sha256::new_with_prefix(self.0).chain_update(b"cache salt\0");
        Self(prefix.chain_update(cache_salt).finalize().into())
    }

    /// The block of `token_ids` that follows this one.
    pub fn child(&self, token_ids: impl IntoIterator<Item = u32>) -> Self {
        let mut hasher = Sha256::new_with_prefix(self.0);
        for token_id in token_ids {
            hasher.update(token_id.to_le_bytes());
        }
        Self(hasher.finalize().into())
    }
}
