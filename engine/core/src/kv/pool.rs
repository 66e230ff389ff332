//! The pool of KV blocks.

use super::{BlockUsage, FreeOrder};
use crate::plan::BlockId;

/// Free blocks, and how many tables hold each of the others.
#[derive(Debug)]
pub(super) struct BlockPool {
    ref_counts: Vec<u32>,
    free: Vec<BlockId>,
    shuffle: Option<u64>,
}

impl BlockPool {
    pub(super) fn new(num_blocks: u32, order: FreeOrder) -> Self {
        let mut pool = Self {
            ref_counts: vec![0; num_blocks as usize],
            free: Vec::with_capacity(num_blocks as usize),
            shuffle: match order {
                FreeOrder::Ascending => None,
                FreeOrder::Shuffled(seed) => Some(seed),
            },
        };
        // Taken from the end, so the lowest goes in last.
        for block in (0..num_blocks).rev() {
            pool.put_free(BlockId(block));
        }
        pool
    }

    pub(super) fn num_available(&self) -> u32 {
        self.free.len() as u32
    }

    /// A block for one table.
    pub(super) fn take(&mut self) -> Option<BlockId> {
        let block = self.free.pop()?;
        self.ref_counts[block.0 as usize] = 1;
        Some(block)
    }

    /// One table less holds `block`.
    pub(super) fn give_back(&mut self, block: BlockId) {
        let count = &mut self.ref_counts[block.0 as usize];
        *count -= 1;
        if *count == 0 {
            self.put_free(block);
        }
    }

    fn put_free(&mut self, block: BlockId) {
        self.free.push(block);
        if let Some(state) = &mut self.shuffle {
            let len = self.free.len();
            self.free.swap(len - 1, (split_mix(state) % len as u64) as usize);
        }
    }

    pub(super) fn usage(&self) -> BlockUsage {
        let total = self.ref_counts.len() as u32;
        let free = self.free.len() as u32;
        BlockUsage { free, cached: 0, in_use: total - free, total }
    }
}

/// The next value of the SplitMix64 generator (Steele, Lea and Flood, 2014).
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
