//! Numbers in the place of tokens.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use super::STOP_TOKEN;
use crate::sequence::SequenceId;

/// Replaces tokens so that two sequences have equal numbers exactly as far as they have equal tokens: each number is
/// taken from SHA-256 over a secret key, the cache salt and all tokens up to this one. Without the key, which is never
/// written down, nothing else can be told from them.
pub struct Pseudonyms {
    key: [u8; 32],
    /// By sequence: the hash of its tokens so far.
    chains: HashMap<SequenceId, [u8; 32]>,
}

impl std::fmt::Debug for Pseudonyms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pseudonyms").field("sequences", &self.chains.len()).finish_non_exhaustive()
    }
}

impl Pseudonyms {
    /// Numbers that depend on `key`, which must be random and is to be forgotten with this value.
    pub fn new(key: [u8; 32]) -> Self {
        Self { key, chains: HashMap::new() }
    }

    /// The prompt of a new sequence. Sequences of different `salt` have nothing in common.
    pub fn prompt(&mut self, id: SequenceId, salt: Option<&str>, prompt: &[u32]) -> Vec<u32> {
        let root = Sha256::new_with_prefix(self.key).chain_update(salt.unwrap_or_default());
        self.chains.insert(id, root.finalize().into());
        prompt.iter().map(|&token_id| self.next(id, token_id)).collect()
    }

    /// The next token of a sequence whose prompt is known; any other sequence gets [`STOP_TOKEN`].
    pub fn next(&mut self, id: SequenceId, token_id: u32) -> u32 {
        let Some(chain) = self.chains.get_mut(&id) else { return STOP_TOKEN };
        let hash =
            Sha256::new_with_prefix(self.key).chain_update(*chain).chain_update(token_id.to_le_bytes());
        *chain = hash.finalize().into();
        let [a, b, c, d, ..] = *chain;
        u32::from_le_bytes([a, b, c, d]).max(STOP_TOKEN + 1)
    }

    /// Forgets a sequence.
    pub fn end(&mut self, id: SequenceId) {
        self.chains.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_equal_as_far_as_tokens_are() {
        let mut pseudonyms = Pseudonyms::new([7; 32]);
        let one = pseudonyms.prompt(SequenceId(1), None, &[5, 6, 6, 9]);
        let other = pseudonyms.prompt(SequenceId(2), None, &[5, 6, 7, 9]);
        assert_eq!(one[..2], other[..2]);
        assert!(
            one[2] != other[2] && one[3] != other[3],
            "one token more differs, and so does all behind it"
        );
        assert_ne!(one[1], one[2], "equal tokens at different places are told apart");
        let continued = pseudonyms.prompt(SequenceId(3), None, &[5, 6]);
        assert_eq!((continued[1], pseudonyms.next(SequenceId(3), 6)), (one[1], one[2]));
    }

    #[test]
    fn another_key_or_salt_gives_other_numbers() {
        let prompt = |key, salt| Pseudonyms::new([key; 32]).prompt(SequenceId(1), salt, &[5]);
        assert_ne!(prompt(1, None), prompt(2, None));
        assert_ne!(prompt(1, None), prompt(1, Some("tenant")));
    }
}
