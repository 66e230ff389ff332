//! What the runner keeps for each sequence, and the checks that a plan must pass before it touches memory.

use std::sync::Arc;

use regatta_core::plan::{Admission, BlockId, Row, SequencePlan, StepPlan};
use regatta_core::runner::RunnerLimits;
use regatta_core::sampling::SamplingParams;

use crate::backend::{Batch, BatchSequence};
use crate::sample::{History, Place};

/// A sequence in a row.
#[derive(Debug)]
pub(super) struct RowState {
    table: Vec<u32>,
    pub(super) sampling: Arc<SamplingParams>,
    pub(super) num_prompt_tokens: u32,
    /// Where sampling looks back.
    pub(super) history: Option<History>,
    /// The last step that computed something for this row.
    step: u64,
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
        for Admission { row, sampling, num_prompt_tokens, known_tokens } in &plan.admitted {
            let (row, num_prompt_tokens) = (*row, *num_prompt_tokens);
            let slot = self.slot(row)?;
            if slot.is_some() {
                return Err(format!("row {} is admitted while it still holds a sequence", row.0));
            }
            let (sampling, history) = (sampling.clone(), known_tokens.as_ref().map(History::from));
            *slot = Some(RowState { table: Vec::new(), sampling, num_prompt_tokens, history, step: 0 });
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

    /// Appends the plan's blocks to the rows' tables and lays the batch out.
    pub(super) fn fill(&mut self, plan: &StepPlan, batch: &mut Batch) -> Result<(), String> {
        self.check_totals(plan)?;
        batch.positions.clear();
        batch.sequences.clear();
        batch.block_tables.clear();
        let mut new_blocks = plan.new_blocks.iter();
        for sequence in &plan.sequences {
            let end = self.end(sequence)?;
            let blocks = new_blocks.by_ref().take(sequence.num_new_blocks as usize);
            let table = self.extend_table(plan.step, sequence, end, blocks)?;
            let first = batch.positions.len();
            batch.positions.extend(sequence.position..end);
            let table_start = batch.block_tables.len();
            batch.block_tables.extend_from_slice(table);
            batch.sequences.push(BatchSequence {
                tokens: first..batch.positions.len(),
                table: table_start..batch.block_tables.len(),
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
        self.check_blocks(plan.new_blocks.iter().copied())?;
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

    /// Appends blocks to a row's table; the blocks that hold the positions before `end`.
    fn extend_table<'a>(
        &mut self,
        step: u64,
        sequence: &SequencePlan,
        end: u32,
        blocks: impl Iterator<Item = &'a BlockId>,
    ) -> Result<&[u32], String> {
        let (number, max_table_len) = (sequence.row.0, self.max_table_len);
        let num_needed = end.div_ceil(self.limits.block_size) as usize;
        let row = self.slot(sequence.row)?;
        let row = row.as_mut().ok_or_else(|| format!("row {number} is planned and holds no sequence"))?;
        if row.step == step {
            return Err(format!("row {number} is planned twice"));
        }
        row.step = step;
        row.table.extend(blocks.map(|block| block.0));
        if row.table.len() > max_table_len {
            return Err(format!(
                "row {number} has {} blocks, at most {max_table_len} are used",
                row.table.len()
            ));
        }
        row.table.get(..num_needed).ok_or_else(|| {
            format!("row {number} has {} blocks, {end} positions need {num_needed}", row.table.len())
        })
    }
}
