//! Tables that begin as another row's do.

use super::KvCache;
use crate::plan::{BlockCopy, BlockId, Row};

impl KvCache {
    /// Whether `parent` still holds all that the token after `num_tokens` tokens sees.
    pub(crate) fn can_fork(&self, parent: Row, num_tokens: u32) -> bool {
        let mut groups = self.groups.as_slice().iter().zip(self.tables(parent));
        groups.all(|(group, table)| table.num_dropped <= group.first_seen(num_tokens) / self.block_size)
    }

    /// Blocks of `parent`, in all groups, that a fork after `num_tokens` tokens shares.
    pub(crate) fn num_shared(&self, num_tokens: u32) -> u32 {
        let num_full = num_tokens / self.block_size;
        let groups = self.groups.as_slice().iter();
        groups.map(|group| num_full - group.first_seen(num_tokens) / self.block_size).sum()
    }

    /// Fills the empty tables of `row` with the full blocks of `parent` that the token after `num_tokens` tokens sees.
    pub(crate) fn share(&mut self, parent: Row, row: Row, num_tokens: u32) {
        let num_full = num_tokens / self.block_size;
        for (group, (from, to)) in self.places(parent).zip(self.places(row)).enumerate() {
            let num_unseen = self.groups.as_slice()[group].first_seen(num_tokens) / self.block_size;
            self.tables[to].num_dropped = num_unseen;
            self.tables[to].blocks.resize(num_unseen as usize, BlockId::NONE);
            for index in num_unseen..num_full {
                let block = self.tables[from].blocks[index as usize];
                self.pool.hold(block);
                self.tables[to].blocks.push(block);
            }
        }
    }

    /// Copies of the blocks that `parent` has filled in part after `num_tokens` tokens, to those that `row` has in their
    /// place.
    pub(crate) fn copy_partial(&self, parent: Row, row: Row, num_tokens: u32, copies: &mut Vec<BlockCopy>) {
        if num_tokens.is_multiple_of(self.block_size) {
            return;
        }
        let index = (num_tokens / self.block_size) as usize;
        let tables = self.tables(parent).iter().zip(self.tables(row));
        copies.extend(tables.map(|(from, to)| BlockCopy { from: from.blocks[index], to: to.blocks[index] }));
    }
}
