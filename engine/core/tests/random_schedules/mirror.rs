//! What somebody who only hears of changes believes to be in the prefix cache.

use std::collections::HashSet;

use regatta_core::kv::{BlockHash, KvEvent};
use regatta_core::scheduler::Scheduler;

/// Blocks by hash and group.
#[derive(Default)]
pub(crate) struct Mirror(HashSet<(BlockHash, u8)>);

impl Mirror {
    /// Takes in what changed, each change a real one, and compares the outcome with the cache itself.
    pub(crate) fn follow(&mut self, scheduler: &mut Scheduler, block_size: u32) {
        let mut events = Vec::new();
        scheduler.take_kv_events(&mut events);
        for event in events {
            match event {
                KvEvent::Stored { group, hashes, token_ids, .. } => {
                    assert_eq!(token_ids.len(), hashes.len() * block_size as usize);
                    let all_new = hashes.into_iter().all(|hash| self.0.insert((hash, group)));
                    assert!(all_new, "a block is stored twice");
                }
                KvEvent::Removed { group, hash } => {
                    assert!(self.0.remove(&(hash, group)), "a block is removed that was not there");
                }
                KvEvent::Cleared => self.0.clear(),
            }
        }
        assert_eq!(self.0, scheduler.cached_content().collect(), "events tell of another cache");
    }
}
