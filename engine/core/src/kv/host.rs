//! Host memory, to which the blocks of preempted sequences are swapped. The bookkeeping; the memory is the runner's.

use serde::Serialize;

use super::KvCache;
use crate::ensure;
use crate::plan::{BlockId, BlockSwap, HostBlockId, Row};

/// Host blocks by state: `free + in_use == total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HostUsage {
    /// Hold nothing.
    pub free: u32,
    /// Hold a block of a sequence that waits.
    pub in_use: u32,
    /// All.
    pub total: u32,
}

/// Host blocks that nobody holds, and how many there are in all.
#[derive(Debug)]
pub(crate) struct HostPool {
    free: Vec<HostBlockId>,
    /// Free once the plan that reads them is complete: within a plan, writing to host memory comes first.
    left: Vec<HostBlockId>,
    num_blocks: u32,
    num_holders: usize,
}

/// A sequence's tables in host memory.
#[derive(Debug)]
pub(crate) struct SwappedTables(Vec<SwappedTable>);

#[derive(Debug)]
struct SwappedTable {
    num_dropped: u32,
    blocks: Vec<HostBlockId>,
}

impl SwappedTables {
    pub(crate) fn blocks(&self) -> impl Iterator<Item = HostBlockId> + '_ {
        self.0.iter().flat_map(|table| &table.blocks).copied()
    }
}

impl HostPool {
    pub(crate) fn new(num_blocks: u32) -> Self {
        // Taken from the end.
        let free = (0..num_blocks).rev().map(HostBlockId).collect();
        Self { free, left: Vec::new(), num_blocks, num_holders: 0 }
    }

    /// Blocks that a plan in the making may write to.
    pub(crate) fn num_free(&self) -> u32 {
        self.free.len() as u32
    }

    /// Sequences that have blocks here.
    pub(crate) fn num_holders(&self) -> usize {
        self.num_holders
    }

    pub(crate) fn usage(&self) -> HostUsage {
        let free = (self.free.len() + self.left.len()) as u32;
        HostUsage { free, in_use: self.num_blocks - free, total: self.num_blocks }
    }

    /// Begins a plan: what earlier ones read may be written to.
    pub(crate) fn begin_plan(&mut self) {
        self.free.append(&mut self.left);
    }

    /// Takes back what a sequence has here and will not read.
    pub(crate) fn give_back(&mut self, tables: &SwappedTables) {
        self.num_holders -= 1;
        self.free.extend(tables.blocks());
    }

    /// Checks that `held` and what is free are all blocks, each once.
    pub(crate) fn audit(&self, held: impl Iterator<Item = HostBlockId>) -> Result<(), String> {
        let mut seen = vec![false; self.num_blocks as usize];
        for block in self.free.iter().chain(&self.left).copied().chain(held) {
            let twice = std::mem::replace(&mut seen[block.0 as usize], true);
            ensure(!twice, || format!("host block {} is in two places", block.0))?;
        }
        ensure(seen.iter().all(|&seen| seen), || "a host block is lost".to_owned())
    }
}

impl KvCache {
    /// Notes the copies of all blocks of `row` to host memory, which the caller knows to have room. The row keeps its
    /// blocks.
    pub(crate) fn swap_out(
        &self,
        row: Row,
        host: &mut HostPool,
        swaps: &mut Vec<BlockSwap>,
    ) -> SwappedTables {
        host.num_holders += 1;
        let tables = self.tables(row).iter().map(|table| {
            let blocks = host.free.split_off(host.free.len() - table.held().len());
            let pairs = table.held().iter().zip(&blocks);
            swaps.extend(pairs.map(|(&device, &host)| BlockSwap { device, host }));
            SwappedTable { num_dropped: table.num_dropped, blocks }
        });
        SwappedTables(tables.collect())
    }

    /// Fills the empty tables of `row` with new blocks, which the caller knows to be available, and notes the copies
    /// from host memory to them.
    pub(crate) fn swap_in(
        &mut self,
        row: Row,
        swapped: &SwappedTables,
        host: &mut HostPool,
        swaps: &mut Vec<BlockSwap>,
    ) {
        host.num_holders -= 1;
        host.left.extend(swapped.blocks());
        for (place, swapped) in self.places(row).zip(&swapped.0) {
            let table = &mut self.tables[place];
            table.num_dropped = swapped.num_dropped;
            table.blocks.resize(swapped.num_dropped as usize, BlockId::NONE);
            for &host in &swapped.blocks {
                let device = self.pool.take().expect("the caller checks num_available before it swaps in");
                table.blocks.push(device);
                swaps.push(BlockSwap { device, host });
            }
        }
    }

    /// Tokens of `row`, of `num_tokens` computed ones, that are in blocks which no other row has, too: those that are
    /// lost with it.
    pub(crate) fn num_lost_tokens(&self, row: Row, num_tokens: u32) -> u32 {
        let first = self.tables(row).first();
        let num_shared =
            first.map_or(0, |table| table.held().iter().filter(|&&block| self.pool.is_shared(block)).count());
        num_tokens.saturating_sub(num_shared as u32 * self.block_size)
    }
}
