//! What the runner keeps for each sequence, and the checks that a plan must pass before it touches memory.

use std::sync::Arc;

use regatta_core::plan::{Admission, BlockId, BlockSwap, Row, SequencePlan, StepPlan};
use regatta_core::runner::RunnerLimits;
use regatta_core::sampling::SamplingParams;

use crate::backend::{Batch, BatchSequence};
use crate::sample::{History, Place};

/// A sequence in a row.
#[derive(Debug)]
pub(super) struct RowState {
    /// For each group of layers; all of one length.
    tables: Vec<Table>,
    pub(super) sampling: Arc<SamplingParams>,
    pub(super) num_prompt_tokens: u32,
    /// Where sampling looks back.
    pub(super) history: Option<History>,
    /// The last step that computed something for this row.
    step: u64,
}

#[derive(Clone, Debug, Default)]
struct Table {
    blocks: Vec<u32>,
    /// Entries up to the last that is no block: they can never be read.
    num_absent: usize,
}

impl RowState {
    /// Where the token at `position` is sampled.
    pub(super) fn place(&self, position: u32) -> Place<'_> {
        Place {
            params: &self.sampling,
            position,
            num_generated: position.saturating_sub(self.num_prompt_tokens),
            history: self.history.as_ref(),
        }
    }
}

/// All rows, with the bounds of plans.
#[derive(Debug)]
pub(super) struct Rows {
    rows: Vec<Option<RowState>>,
    limits: RunnerLimits,
    max_table_len: usize,
    vocab_size: u32,
}

impl Rows {
    pub(super) fn new(limits: RunnerLimits, max_model_len: u32, vocab_size: u32) -> Self {
        let rows = (0..limits.max_num_seqs).map(|_| None).collect();
        Self { rows, limits, max_table_len: max_model_len.div_ceil(limits.block_size) as usize, vocab_size }
    }

    /// The sequence of a row that passed [`Rows::fill`].
    pub(super) fn get(&self, row: Row) -> &RowState {
        self.rows[row.0 as usize].as_ref().expect("the plan was checked")
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, row: Row) -> &mut RowState {
        self.rows[row.0 as usize].as_mut().expect("the plan was checked")
    }

    /// Empties and fills rows. Emptying a row that is already free changes nothing, so that whatever a failed step
    /// left undone can be released again.
    pub(super) fn admit(&mut self, plan: &StepPlan) -> Result<(), String> {
        for &row in &plan.released {
            *self.slot(row)? = None;
        }
        let num_groups = self.limits.kv_groups.as_slice().len();
        for Admission { row, sampling, num_prompt_tokens, known_tokens } in &plan.admitted {
            let (row, num_prompt_tokens) = (*row, *num_prompt_tokens);
            let slot = self.slot(row)?;
            if slot.is_some() {
                return Err(format!("row {} is admitted while it still holds a sequence", row.0));
            }
            let (sampling, history) = (sampling.clone(), known_tokens.as_ref().map(History::from));
            let tables = vec![Table::default(); num_groups];
            *slot = Some(RowState { tables, sampling, num_prompt_tokens, history, step: 0 });
        }
        Ok(())
    }

    /// Forgets the sequences of a step that failed: they cannot go on.
    pub(super) fn abandon(&mut self, plan: &StepPlan) {
        for sequence in &plan.sequences {
            if let Ok(slot) = self.slot(sequence.row) {
                *slot = None;
            }
        }
    }

    /// Checks that blocks exist.
    pub(super) fn check_blocks(&self, blocks: impl IntoIterator<Item = BlockId>) -> Result<(), String> {
        let num_blocks = self.limits.num_blocks;
        match blocks.into_iter().find(|block| block.0 >= num_blocks) {
            Some(block) => Err(format!("block {} is beyond the pool of {num_blocks}", block.0)),
            None => Ok(()),
        }
    }

    /// Checks that blocks exist on both sides.
    pub(super) fn check_swaps(&self, swaps: &[BlockSwap]) -> Result<(), String> {
        self.check_blocks(swaps.iter().map(|swap| swap.device))?;
        let num_blocks = self.limits.num_host_blocks;
        match swaps.iter().find(|swap| swap.host.0 >= num_blocks) {
            Some(swap) => Err(format!("host block {} is beyond the {num_blocks} of them", swap.host.0)),
            None => Ok(()),
        }
    }

    /// Appends the plan's blocks to the rows' tables and lays the batch out.
    pub(super) fn fill(&mut self, plan: &StepPlan, batch: &mut Batch) -> Result<(), String> {
        self.check_totals(plan)?;
        batch.positions.clear();
        batch.sequences.clear();
        batch.block_tables.clear();
        let mut new_blocks = plan.new_blocks.as_slice();
        for sequence in &plan.sequences {
            let end = self.end(sequence)?;
            let (blocks, others) = new_blocks.split_at(sequence.num_new_blocks as usize);
            new_blocks = others;
            let table_start = batch.block_tables.len();
            let table_len = self.extend_tables(plan.step, sequence, end, blocks, &mut batch.block_tables)?;
            let first = batch.positions.len();
            batch.positions.extend(sequence.position..end);
            batch.sequences.push(BatchSequence {
                tokens: first..batch.positions.len(),
                table: table_start..table_start + table_len,
            });
        }
        Ok(())
    }

    fn slot(&mut self, row: Row) -> Result<&mut Option<RowState>, String> {
        let max = self.limits.max_num_seqs;
        self.rows.get_mut(row.0 as usize).ok_or_else(|| format!("row {} is beyond the {max} rows", row.0))
    }

    fn check_totals(&self, plan: &StepPlan) -> Result<(), String> {
        let count =
            |each: fn(&SequencePlan) -> u32| plan.sequences.iter().map(|s| each(s) as usize).sum::<usize>();
        let (num_tokens, max_tokens) = (count(|s| s.num_tokens), self.limits.max_num_batched_tokens);
        if num_tokens != plan.token_ids.len() || num_tokens > max_tokens as usize {
            let given = plan.token_ids.len();
            return Err(format!(
                "{num_tokens} tokens are planned and {given} given, at most {max_tokens} fit"
            ));
        }
        let (num_blocks, given) = (count(|s| s.num_new_blocks), plan.new_blocks.len());
        if num_blocks != given {
            return Err(format!("{num_blocks} new blocks are planned and {given} given"));
        }
        if let Some(ahead) = plan.sequences.iter().find(|sequence| sequence.num_placeholders > 0) {
            let number = ahead.row.0;
            return Err(format!(
                "row {number} goes on with a token that is not given, and none are fed back here"
            ));
        }
        self.check_blocks(plan.new_blocks.iter().copied().filter(|&block| block != BlockId::NONE))?;
        let next = plan.sequences.iter().filter_map(|sequence| sequence.next_prompt_token);
        match plan.token_ids.iter().copied().chain(next).find(|&id| id >= self.vocab_size) {
            Some(id) => Err(format!("token {id} is beyond the vocabulary of {}", self.vocab_size)),
            None => Ok(()),
        }
    }

    /// The position after the last that a sequence computes.
    fn end(&self, sequence: &SequencePlan) -> Result<u32, String> {
        let end = sequence.position.checked_add(sequence.num_tokens).filter(|_| sequence.num_tokens > 0);
        end.ok_or_else(|| {
            let SequencePlan { row, position, num_tokens, .. } = sequence;
            format!("row {} computes {num_tokens} tokens at position {position}", row.0)
        })
    }

    /// Appends blocks to a row's tables and lays those that hold the positions before `end` out, group by group.
    /// Returns how long each of them is.
    fn extend_tables(
        &mut self,
        step: u64,
        sequence: &SequencePlan,
        end: u32,
        new_blocks: &[BlockId],
        laid_out: &mut Vec<u32>,
    ) -> Result<usize, String> {
        let (number, max_table_len, block_size) =
            (sequence.row.0, self.max_table_len, self.limits.block_size);
        let kv_groups = self.limits.kv_groups;
        let groups = kv_groups.as_slice();
        let num_needed = end.div_ceil(block_size) as usize;
        let row = self.slot(sequence.row)?;
        let row = row.as_mut().ok_or_else(|| format!("row {number} is planned and holds no sequence"))?;
        if row.step == step {
            return Err(format!("row {number} is planned twice"));
        }
        row.step = step;
        let (num_each, rest) = (new_blocks.len() / groups.len(), new_blocks.len() % groups.len());
        if rest != 0 {
            return Err(format!("row {number} gets {} blocks for {} groups", new_blocks.len(), groups.len()));
        }
        for (index, (group, table)) in groups.iter().zip(&mut row.tables).enumerate() {
            table.extend(&new_blocks[index * num_each..(index + 1) * num_each]);
            let held = table.blocks.len();
            if held > max_table_len {
                return Err(format!("row {number} has {held} blocks, at most {max_table_len} are used"));
            }
            let first_seen = (group.first_seen(sequence.position) / block_size) as usize;
            if table.num_absent > first_seen {
                return Err(format!("row {number} sees block {first_seen} and lacks it"));
            }
            let needed = table.blocks.get(..num_needed).ok_or_else(|| {
                format!("row {number} has {held} blocks, {end} positions need {num_needed}")
            })?;
            laid_out.extend_from_slice(needed);
        }
        Ok(num_needed)
    }
}

impl Table {
    fn extend(&mut self, new_blocks: &[BlockId]) {
        for &block in new_blocks {
            self.blocks.push(block.0);
            if block == BlockId::NONE {
                self.num_absent = self.blocks.len();
            }
        }
    }
}
