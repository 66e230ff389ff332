//! Bookkeeping of the KV pool: which row holds which blocks. The memory itself is the runner's.
//!
//! Blocks live only in the tables here: nobody else holds one, so none can be lost or given back twice. What a
//! [`StepPlan`](crate::plan::StepPlan) carries are names.

mod event;
mod fork;
mod group;
mod hash;
mod host;
mod pool;
mod prefix;

pub(crate) use event::BlockContent;
pub use event::KvEvent;
pub use group::{KvGroup, KvGroups, KvGroupsError};
pub use hash::BlockHash;
pub use host::HostUsage;
pub(crate) use host::{HostPool, SwappedTables};
pub(crate) use prefix::PrefixHit;

use serde::{Deserialize, Serialize};

use crate::ensure;
use crate::plan::{BlockId, Row};
use crate::runner::RunnerLimits;
use crate::scheduler::SchedulerConfig;
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

/// Block tables of all rows over one pool: one for each row and group of layers. The tables of a row are of one
/// length; what a group no longer needs is given back, and its entry stays.
#[derive(Debug)]
pub(crate) struct KvCache {
    block_size: u32,
    groups: KvGroups,
    /// Whether some group ever gives blocks back before its sequence ends.
    has_windows: bool,
    /// Most tokens of one sequence that are computed and not yet settled.
    max_step_tokens: u32,
    pool: BlockPool,
    /// `[row][group]`.
    tables: Vec<Table>,
}

/// The blocks of one row in one group.
#[derive(Debug, Default)]
struct Table {
    blocks: Vec<BlockId>,
    /// Leading entries that hold no block any more, or never did.
    num_dropped: u32,
}

impl Table {
    fn held(&self) -> &[BlockId] {
        &self.blocks[self.num_dropped as usize..]
    }
}

impl KvCache {
    /// A cache for a runner, of whose sequences each has at most `max_step_tokens` tokens in flight.
    pub(crate) fn new(
        runner: &RunnerLimits,
        num_rows: u32,
        max_step_tokens: u32,
        config: &SchedulerConfig,
    ) -> Self {
        let groups = runner.kv_groups;
        let num_tables = num_rows as usize * groups.as_slice().len();
        Self {
            block_size: runner.block_size,
            groups,
            has_windows: groups.as_slice().iter().any(|group| *group != KvGroup::Full),
            max_step_tokens,
            pool: BlockPool::new(runner.num_blocks, config.free_order, config.kv_events),
            tables: (0..num_tables).map(|_| Table::default()).collect(),
        }
    }

    /// Groups of layers, each with a block for the same positions.
    pub(crate) fn num_groups(&self) -> u32 {
        self.groups.as_slice().len() as u32
    }

    fn places(&self, row: Row) -> std::ops::Range<usize> {
        let num_groups = self.groups.as_slice().len();
        row.0 as usize * num_groups..(row.0 as usize + 1) * num_groups
    }

    fn tables(&self, row: Row) -> &[Table] {
        &self.tables[self.places(row)]
    }

    /// Blocks that can be handed out now.
    pub(crate) fn num_available(&self) -> u32 {
        self.pool.num_available()
    }

    /// Entries in each of the tables of `row`.
    pub(crate) fn table_len(&self, row: Row) -> u32 {
        self.tables[row.0 as usize * self.groups.as_slice().len()].blocks.len() as u32
    }

    /// Blocks that `row` must get before the tokens up to `num_tokens` can be computed.
    pub(crate) fn num_missing(&self, row: Row, num_tokens: u32) -> u32 {
        num_tokens.div_ceil(self.block_size).saturating_sub(self.table_len(row)) * self.num_groups()
    }

    /// Blocks that a sequence of `num_tokens` tokens holds at most at once.
    pub(crate) fn max_blocks(&self, num_tokens: u32) -> u32 {
        self.groups.max_blocks(num_tokens, self.max_step_tokens, self.block_size)
    }

    /// Blocks in the tables of `row`.
    pub(crate) fn num_held(&self, row: Row) -> u32 {
        self.tables(row).iter().map(|table| table.held().len() as u32).sum()
    }

    /// Blocks beyond those it has that `row` may need at once until `num_tokens` tokens are computed.
    pub(crate) fn num_lacking(&self, row: Row, num_tokens: u32) -> u32 {
        self.max_blocks(num_tokens).saturating_sub(self.num_held(row))
    }

    /// Sets memory aside for the tables of a sequence of `num_tokens` tokens.
    pub(crate) fn reserve(&mut self, row: Row, num_tokens: usize) {
        let (places, num_blocks) = (self.places(row), num_tokens.div_ceil(self.block_size as usize));
        self.tables[places].iter_mut().for_each(|table| table.blocks.reserve(num_blocks));
    }

    /// Makes the content of some blocks of `row`, now complete, findable by their hashes. `describe` says what the
    /// block at an index is.
    pub(crate) fn publish(
        &mut self,
        row: Row,
        blocks: std::ops::Range<u32>,
        hashes: &[BlockHash],
        describe: impl Fn(u32) -> BlockContent,
    ) {
        for (group, place) in self.places(row).enumerate() {
            let table = &self.tables[place];
            for index in blocks.start.max(table.num_dropped)..blocks.end {
                let (block, hash) = (table.blocks[index as usize], hashes[index as usize]);
                self.pool.publish(block, hash, group as u8, || describe(index));
            }
        }
    }

    /// Makes all content unfindable.
    pub(crate) fn forget_all(&mut self) {
        self.pool.forget_all();
    }

    /// See [`Scheduler::take_kv_events`](crate::scheduler::Scheduler::take_kv_events).
    pub(crate) fn take_events(&mut self, taken: &mut Vec<KvEvent>) {
        self.pool.take_events(taken);
    }

    /// What can be found, with its group, in no order.
    pub(crate) fn findable(&self) -> impl Iterator<Item = (BlockHash, u8)> {
        self.pool.findable()
    }

    /// Extends the tables of `row` until they hold `num_tokens` tokens. The caller has checked that blocks are
    /// available. Appends to `new_blocks`, group by group, all entries but the first `num_known`; returns how many.
    pub(crate) fn grow(
        &mut self,
        row: Row,
        num_tokens: u32,
        num_known: u32,
        new_blocks: &mut Vec<BlockId>,
    ) -> u32 {
        let num_entries = num_tokens.div_ceil(self.block_size);
        if num_entries == num_known {
            return 0;
        }
        let places = self.places(row);
        for table in &mut self.tables[places] {
            while (table.blocks.len() as u32) < num_entries {
                let block =
                    self.pool.take().expect("the caller checks num_available before it grows a table");
                table.blocks.push(block);
            }
            new_blocks.extend_from_slice(&table.blocks[num_known as usize..]);
        }
        (num_entries - num_known) * self.num_groups()
    }

    /// Gives back the blocks of `row` that no token from `position` on sees.
    pub(crate) fn drop_unseen(&mut self, row: Row, position: u32) {
        if !self.has_windows {
            return;
        }
        for (group, place) in self.places(row).enumerate() {
            let num_unseen = self.groups.as_slice()[group].first_seen(position) / self.block_size;
            let Table { blocks, num_dropped } = &mut self.tables[place];
            while *num_dropped < num_unseen.min(blocks.len() as u32) {
                self.pool.give_back(std::mem::replace(&mut blocks[*num_dropped as usize], BlockId::NONE));
                *num_dropped += 1;
            }
        }
    }

    /// Gives all blocks of `row` back, last first: of what stays cached, the beginnings that others may share are
    /// given up last.
    pub(crate) fn release(&mut self, row: Row) {
        let places = self.places(row);
        for index in (0..self.table_len(row)).rev() {
            for table in &self.tables[places.clone()] {
                if index >= table.num_dropped {
                    self.pool.give_back(table.blocks[index as usize]);
                }
            }
        }
        for table in &mut self.tables[places] {
            table.blocks.clear();
            table.num_dropped = 0;
        }
    }

    pub(crate) fn usage(&self) -> BlockUsage {
        self.pool.usage()
    }

    /// Checks the pool, and that each row holds the blocks that its settled tokens and those in flight need and no
    /// others. `num_tokens` gives both for each row.
    pub(crate) fn audit(&self, num_tokens: impl Iterator<Item = (u32, u32)>) -> Result<(), String> {
        let mut num_holders = vec![0; self.pool.usage().total as usize];
        for (row, (num_computed, num_in_flight)) in num_tokens.enumerate() {
            let num_entries = (num_computed + num_in_flight).div_ceil(self.block_size);
            for (group, table) in self.groups.as_slice().iter().zip(self.tables(Row(row as u32))) {
                let len = table.blocks.len();
                ensure(len == num_entries as usize, || {
                    format!("row {row} has {len} blocks, not {num_entries}")
                })?;
                let num_unseen = (group.first_seen(num_computed) / self.block_size).min(num_entries);
                ensure(table.num_dropped == num_unseen, || {
                    format!("row {row} has dropped {} blocks, not {num_unseen}", table.num_dropped)
                })?;
                for block in table.held() {
                    num_holders[block.0 as usize] += 1;
                }
            }
        }
        self.pool.audit(&num_holders)
    }
}
