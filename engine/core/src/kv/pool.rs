//! The pool of KV blocks.

use std::collections::{BTreeMap, HashMap};

use super::event::push_stored;
use super::{BlockContent, BlockHash, BlockUsage, FreeOrder, KvEvent};
use crate::ensure;
use crate::plan::BlockId;

/// What a complete block holds: keys and values of one group of layers for the tokens of a chain.
type Content = (BlockHash, u8);

#[derive(Clone, Copy, Debug, Default)]
struct BlockState {
    /// Tables that hold the block.
    num_holders: u32,
    /// Names the content, when it is complete and findable.
    content: Option<Content>,
    /// Key in `cached` while nobody holds the block and its content is findable.
    released_at: u64,
}

/// Every block is in one of three states: free, cached (held by nobody, findable by its hash) or in use.
#[derive(Debug)]
pub(super) struct BlockPool {
    blocks: Vec<BlockState>,
    free: Vec<BlockId>,
    /// Least recently released first.
    cached: BTreeMap<u64, BlockId>,
    by_content: HashMap<Content, BlockId>,
    num_releases: u64,
    shuffle: Option<u64>,
    /// What changed in `by_content`, where somebody wants to know.
    events: Option<Vec<KvEvent>>,
}

impl BlockPool {
    pub(super) fn new(num_blocks: u32, order: FreeOrder, tells_events: bool) -> Self {
        let mut pool = Self {
            blocks: vec![BlockState::default(); num_blocks as usize],
            free: Vec::with_capacity(num_blocks as usize),
            cached: BTreeMap::new(),
            by_content: HashMap::with_capacity(num_blocks as usize),
            num_releases: 0,
            shuffle: match order {
                FreeOrder::Ascending => None,
                FreeOrder::Shuffled(seed) => Some(seed),
            },
            events: tells_events.then(Vec::new),
        };
        // Taken from the end, so the lowest goes in last.
        for block in (0..num_blocks).rev() {
            pool.put_free(BlockId(block));
        }
        pool
    }

    /// Blocks that can be taken: free ones, then cached ones.
    pub(super) fn num_available(&self) -> u32 {
        (self.free.len() + self.cached.len()) as u32
    }

    /// A block of unknown content for one table. Cached content is given up only when nothing is free.
    pub(super) fn take(&mut self) -> Option<BlockId> {
        let block = match self.free.pop() {
            Some(block) => block,
            None => {
                let (_, block) = self.cached.pop_first()?;
                if let Some(content) = self.state(block).content.take() {
                    self.by_content.remove(&content);
                    let (hash, group) = content;
                    self.events.iter_mut().for_each(|events| events.push(KvEvent::Removed { group, hash }));
                }
                block
            }
        };
        self.state(block).num_holders = 1;
        Some(block)
    }

    /// The block with this content, if there is one.
    pub(super) fn find(&self, hash: &BlockHash, group: u8) -> Option<BlockId> {
        self.by_content.get(&(*hash, group)).copied()
    }

    /// Whether nobody holds `block`, so that holding it makes one less available.
    pub(super) fn is_idle(&self, block: BlockId) -> bool {
        self.blocks[block.0 as usize].num_holders == 0
    }

    /// Whether more than one table holds `block`.
    pub(super) fn is_shared(&self, block: BlockId) -> bool {
        self.blocks[block.0 as usize].num_holders > 1
    }

    /// One table more holds `block`, which was found by its hash or is held by another.
    pub(super) fn hold(&mut self, block: BlockId) {
        let state = self.state(block);
        state.num_holders += 1;
        if state.num_holders == 1 {
            let key = state.released_at;
            self.cached.remove(&key);
        }
    }

    /// One table less holds `block`.
    pub(super) fn give_back(&mut self, block: BlockId) {
        self.num_releases += 1;
        let now = self.num_releases;
        let state = self.state(block);
        state.num_holders -= 1;
        if state.num_holders > 0 {
            return;
        }
        if state.content.is_some() {
            state.released_at = now;
            self.cached.insert(now, block);
        } else {
            self.put_free(block);
        }
    }

    /// Makes the content of a held block findable, unless another block already offers the same. `describe` says what
    /// it is, where somebody wants to know.
    pub(super) fn publish(
        &mut self,
        block: BlockId,
        hash: BlockHash,
        group: u8,
        describe: impl FnOnce() -> BlockContent,
    ) {
        if let std::collections::hash_map::Entry::Vacant(entry) = self.by_content.entry((hash, group)) {
            entry.insert(block);
            self.state(block).content = Some((hash, group));
            if let Some(events) = &mut self.events {
                push_stored(events, group, hash, describe());
            }
        }
    }

    /// Makes all content unfindable: cached blocks are free.
    pub(super) fn forget_all(&mut self) {
        self.by_content.clear();
        self.blocks.iter_mut().for_each(|state| state.content = None);
        while let Some((_, block)) = self.cached.pop_last() {
            self.put_free(block);
        }
        self.events.iter_mut().for_each(|events| events.push(KvEvent::Cleared));
    }

    /// The changes since the last call, in order, into an empty list whose memory is used for the next ones.
    pub(super) fn take_events(&mut self, taken: &mut Vec<KvEvent>) {
        self.events.iter_mut().for_each(|events| std::mem::swap(events, taken));
    }

    /// What can be found, in no order.
    pub(super) fn findable(&self) -> impl Iterator<Item = (BlockHash, u8)> {
        self.by_content.keys().copied()
    }

    pub(super) fn usage(&self) -> BlockUsage {
        let (total, free, cached) =
            (self.blocks.len() as u32, self.free.len() as u32, self.cached.len() as u32);
        BlockUsage { free, cached, in_use: total - free - cached, total }
    }

    fn state(&mut self, block: BlockId) -> &mut BlockState {
        &mut self.blocks[block.0 as usize]
    }

    fn put_free(&mut self, block: BlockId) {
        self.free.push(block);
        if let Some(state) = &mut self.shuffle {
            let len = self.free.len();
            self.free.swap(len - 1, (split_mix(state) % len as u64) as usize);
        }
    }

    /// Checks the states of all blocks against `num_holders`, counted from the tables.
    pub(super) fn audit(&self, num_holders: &[u32]) -> Result<(), String> {
        let mut is_free = vec![false; self.blocks.len()];
        for block in &self.free {
            let twice = std::mem::replace(&mut is_free[block.0 as usize], true);
            ensure(!twice, || format!("block {} is free twice", block.0))?;
        }
        for (index, state) in self.blocks.iter().enumerate() {
            let held = num_holders[index];
            ensure(state.num_holders == held, || {
                format!("block {index} is held {held} times and counted wrong")
            })?;
            let is_cached = self.cached.get(&state.released_at) == Some(&BlockId(index as u32));
            let num_states = u32::from(held > 0) + u32::from(is_free[index]) + u32::from(is_cached);
            ensure(num_states == 1, || format!("block {index} is in {num_states} states at once"))?;
            let findable = state
                .content
                .is_some_and(|content| self.by_content.get(&content) == Some(&BlockId(index as u32)));
            ensure(findable == state.content.is_some(), || {
                format!("block {index} is not found by its content")
            })?;
            ensure(!is_cached || findable, || format!("block {index} is cached and cannot be found"))?;
        }
        let num_hashed = self.blocks.iter().filter(|state| state.content.is_some()).count();
        ensure(num_hashed == self.by_content.len(), || {
            "a hash names a block that does not have it".to_owned()
        })?;
        let usage = self.usage();
        let num_in_use = num_holders.iter().filter(|&&count| count > 0).count();
        ensure(usage.in_use as usize == num_in_use, || {
            format!("{usage:?} with {num_in_use} blocks in tables")
        })
    }
}

/// The next value of the SplitMix64 generator (Steele, Lea and Flood, 2014).
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
