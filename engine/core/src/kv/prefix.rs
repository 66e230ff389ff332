//! What the pool already holds of a sequence's beginning.

use super::{BlockHash, KvCache};
use crate::plan::{BlockId, Row};

/// A beginning that is there in every group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrefixHit {
    /// Blocks of each group.
    pub(crate) num_blocks: u32,
    /// Those of all groups that others hold, so that adopting them costs nothing.
    pub(crate) num_shared: u32,
}

impl KvCache {
    /// The longest beginning of a chain after which every group finds all that the next token sees: all blocks in a
    /// group of full attention, the last window's in another. Holds none of them.
    pub(crate) fn find_prefix(&self, hashes: &[BlockHash]) -> PrefixHit {
        let mut num_blocks = hashes.len() as u32;
        // A group that shortens the beginning may undo what another one found.
        loop {
            let groups = 0..self.num_groups() as usize;
            let shortest = groups.fold(num_blocks, |len, group| self.find_in(group, &hashes[..len as usize]));
            if shortest == num_blocks {
                break;
            }
            num_blocks = shortest;
        }
        let is_shared = |&block: &BlockId| !self.pool.is_idle(block);
        let num_shared = (0..self.num_groups() as usize)
            .flat_map(|group| self.seen_blocks(group, &hashes[..num_blocks as usize]))
            .filter(is_shared)
            .count();
        PrefixHit { num_blocks, num_shared: num_shared as u32 }
    }

    /// The longest beginning of `hashes` after which this group finds what the next token sees.
    fn find_in(&self, group: usize, hashes: &[BlockHash]) -> u32 {
        let is_there = |hash: &BlockHash| self.pool.find(hash, group as u8).is_some();
        let mut len = hashes.len();
        if self.num_unseen(group, len) == 0 {
            return hashes.iter().take_while(|hash| is_there(hash)).count() as u32;
        }
        while let Some(gap) = (self.num_unseen(group, len)..len).rev().find(|&i| !is_there(&hashes[i])) {
            len = gap;
        }
        len as u32
    }

    /// Leading blocks that the token after `num_blocks` blocks does not see.
    fn num_unseen(&self, group: usize, num_blocks: usize) -> usize {
        let position = num_blocks as u32 * self.block_size;
        ((self.groups.as_slice()[group].first_seen(position) / self.block_size) as usize).min(num_blocks)
    }

    /// The blocks of this group that the token after these hashes sees; all of them are there.
    fn seen_blocks(&self, group: usize, hashes: &[BlockHash]) -> impl Iterator<Item = BlockId> {
        hashes[self.num_unseen(group, hashes.len())..]
            .iter()
            .map_while(move |hash| self.pool.find(hash, group as u8))
    }

    /// Fills the empty tables of `row` with a beginning that [`KvCache::find_prefix`] has found.
    pub(crate) fn adopt_prefix(&mut self, row: Row, hashes: &[BlockHash]) {
        for (group, place) in self.places(row).enumerate() {
            let num_unseen = self.num_unseen(group, hashes.len());
            let table = &mut self.tables[place];
            table.num_dropped = num_unseen as u32;
            table.blocks.resize(num_unseen, BlockId::NONE);
            for hash in &hashes[num_unseen..] {
                let block = self.pool.find(hash, group as u8).expect("the prefix has just been found");
                self.pool.hold(block);
                table.blocks.push(block);
            }
        }
    }
}
