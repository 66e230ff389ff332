//! Bookkeeping of the KV pool: which row holds which blocks. The memory itself is the runner's.
//!
//! Blocks live only in the tables here: nobody else holds one, so none can be lost or given back twice. What a
//! [`StepPlan`](crate::plan::StepPlan) carries are names.

mod hash;
mod pool;

pub use hash::BlockHash;

use serde::{Deserialize, Serialize};

use crate::ensure;
use crate::plan::{BlockId, Row};
use pool::BlockPool;

/// Blocks by state: `free + cached + in_use == total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlockUsage {
    /// Hold nothing.
    pub free: u32,
    /// Used by no sequence, with content that may be used again.
    pub cached: u32,
    /// In the table of at least one row.
    pub in_use: u32,
    /// All.
    pub total: u32,
}

/// The order in which free blocks are handed out. Results never depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FreeOrder {
    /// Ascending at the start, then latest returned first.
    #[default]
    Ascending,
    /// Shuffled at the start by this seed, and every returned block goes to a random place: for tests.
    Shuffled(u64),
}

/// Block tables of all rows over one pool.
#[derive(Debug)]
pub(crate) struct KvCache {
    block_size: u32,
    pool: BlockPool,
    tables: Vec<Vec<BlockId>>,
}

impl KvCache {
    pub(crate) fn new(block_size: u32, num_blocks: u32, num_rows: u32, order: FreeOrder) -> Self {
        Self {
            block_size,
            pool: BlockPool::new(num_blocks, order),
            tables: (0..num_rows).map(|_| Vec::new()).collect(),
        }
    }

    /// Blocks that can be handed out now.
    pub(crate) fn num_available(&self) -> u32 {
        self.pool.num_available()
    }

    /// Blocks that `row` lacks to hold `num_tokens` tokens.
    pub(crate) fn num_missing(&self, row: Row, num_tokens: u32) -> u32 {
        num_tokens.div_ceil(self.block_size).saturating_sub(self.tables[row.0 as usize].len() as u32)
    }

    /// Blocks in the table of `row`.
    pub(crate) fn num_held(&self, row: Row) -> u32 {
        self.tables[row.0 as usize].len() as u32
    }

    /// Sets memory aside for the table of a sequence of `num_tokens` tokens.
    pub(crate) fn reserve(&mut self, row: Row, num_tokens: usize) {
        self.tables[row.0 as usize].reserve(num_tokens.div_ceil(self.block_size as usize));
    }

    /// The leading blocks of a chain that are in the pool. Holds none of them.
    pub(crate) fn find_prefix<'a>(&'a self, hashes: &'a [BlockHash]) -> impl Iterator<Item = BlockId> + 'a {
        hashes.iter().map_while(|hash| self.pool.find(hash))
    }

    /// Whether nobody holds `block`, so that adopting it makes one less available.
    pub(crate) fn is_idle(&self, block: BlockId) -> bool {
        self.pool.is_idle(block)
    }

    /// Fills the empty table of `row` with the leading blocks of a chain that are in the pool, and `new_blocks` as
    /// well. Returns how many.
    pub(crate) fn adopt_prefix(
        &mut self,
        row: Row,
        hashes: &[BlockHash],
        new_blocks: &mut Vec<BlockId>,
    ) -> u32 {
        let table = &mut self.tables[row.0 as usize];
        for hash in hashes {
            let Some(block) = self.pool.find(hash) else { break };
            self.pool.hold(block);
            table.push(block);
            new_blocks.push(block);
        }
        table.len() as u32
    }

    /// Makes the content of the `index`-th block of `row`, now complete, findable by its hash.
    pub(crate) fn publish(&mut self, row: Row, index: u32, hash: BlockHash) {
        self.pool.publish(self.tables[row.0 as usize][index as usize], hash);
    }

    /// Appends `count` blocks to `row` and to `new_blocks`. The caller has checked that they are available.
    pub(crate) fn grow(&mut self, row: Row, count: u32, new_blocks: &mut Vec<BlockId>) {
        let table = &mut self.tables[row.0 as usize];
        for _ in 0..count {
            let block = self.pool.take().expect("the caller checks num_available before it grows a table");
            table.push(block);
            new_blocks.push(block);
        }
    }

    /// Gives all blocks of `row` back, last first: of what stays cached, the beginnings that others may share are
    /// given up last.
    pub(crate) fn release(&mut self, row: Row) {
        for block in self.tables[row.0 as usize].drain(..).rev() {
            self.pool.give_back(block);
        }
    }

    pub(crate) fn usage(&self) -> BlockUsage {
        self.pool.usage()
    }

    /// Checks the pool and that `row` holds enough blocks for `num_tokens[row]` tokens and no more.
    pub(crate) fn audit(&self, num_tokens: impl Iterator<Item = u32>) -> Result<(), String> {
        let mut num_holders = vec![0; self.pool.usage().total as usize];
        for (row, (table, num_tokens)) in self.tables.iter().zip(num_tokens).enumerate() {
            let (held, needed) = (table.len(), num_tokens.div_ceil(self.block_size) as usize);
            ensure(held == needed, || format!("row {row} holds {held} blocks, not {needed}"))?;
            for block in table {
                num_holders[block.0 as usize] += 1;
            }
        }
        self.pool.audit(&num_holders)
    }
}
