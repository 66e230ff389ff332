//! A runner without a model.

use std::collections::VecDeque;
use std::sync::Arc;

use super::host_memory::HostMemory;
use super::reply::{Context, Reply};
use super::sight::Sight;
use crate::kv::KvGroup;
use crate::plan::{
    BlockId, KnownTokens, PositionLogprobs, Row, SequenceOutput, SequencePlan, StepOutput, StepPlan,
};
use crate::runner::{ModelRunner, RunnerLimits, StepError, Ticket};
use crate::sampling::SamplingParams;

/// One position of KV: the token, and a value that depends on all positions that it sees.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    token_id: u32,
    entry: u64,
}

#[derive(Debug)]
struct RowState {
    /// For each group.
    tables: Vec<Table>,
    sampling: Arc<SamplingParams>,
    num_prompt_tokens: u32,
    known_tokens: Option<KnownTokens>,
    /// Position and token that the last step sampled.
    sampled: Option<(u32, u32)>,
}

impl RowState {
    /// Checks what sampling would look back at against the tokens that are stored, from position `first` on, and
    /// notes the next one.
    fn look_back(&mut self, first: u32, stored: impl Iterator<Item = u32>, chosen: u32) {
        assert_eq!(self.known_tokens.is_some(), self.sampling.looks_back(), "tokens are given where needed");
        let Some(known) = &mut self.known_tokens else { return };
        let all = known.prompt.iter().chain(&known.generated).copied();
        assert!(
            stored.eq(all.skip(first as usize)),
            "the tokens that sampling looks back at are not those of the sequence"
        );
        known.generated.push(chosen);
    }
}

#[derive(Clone, Debug, Default)]
struct Table {
    blocks: Vec<BlockId>,
    /// Leading entries that no later token sees.
    num_unseen: usize,
}

/// Runs step plans over shadow KV memory, and panics, with the reason, on a plan that breaks the contract of
/// [`StepPlan`] or this runner's limits: one that reads a block which is not there, or writes to one that others read.
#[derive(Debug)]
pub struct FakeRunner {
    limits: RunnerLimits,
    reply: Reply,
    slots: Vec<Slot>,
    host: HostMemory<Slot>,
    /// How many tables have a block whose content later tokens see, by block.
    num_readers: Vec<u32>,
    rows: Vec<Option<RowState>>,
    in_flight: VecDeque<(u64, StepOutput)>,
    last_step: u64,
}

impl FakeRunner {
    /// A runner with these limits; every number in them must be at least 1.
    pub fn new(limits: RunnerLimits, reply: Reply) -> Self {
        Self {
            limits,
            reply,
            slots: vec![Slot::default(); limits.num_blocks as usize * limits.block_size as usize],
            host: HostMemory::new(limits.num_host_blocks),
            num_readers: vec![0; limits.num_blocks as usize],
            rows: (0..limits.max_num_seqs).map(|_| None).collect(),
            in_flight: VecDeque::new(),
            last_step: 0,
        }
    }

    /// Rows that hold a sequence.
    pub fn num_rows_in_use(&self) -> usize {
        self.rows.iter().flatten().count()
    }

    fn check(&self, plan: &StepPlan) {
        let RunnerLimits { max_num_batched_tokens, max_in_flight, .. } = self.limits;
        let num_tokens: u32 = plan.sequences.iter().map(|s| s.num_tokens).sum();
        let num_blocks: u32 = plan.sequences.iter().map(|s| s.num_new_blocks).sum();
        let swaps_only = plan.sequences.is_empty() && !plan.swapped_out.is_empty();
        assert!(swaps_only || plan.step > self.last_step, "step {} after step {}", plan.step, self.last_step);
        assert!(self.in_flight.len() < max_in_flight as usize, "more than {max_in_flight} steps in flight");
        assert!(swaps_only || !plan.sequences.is_empty(), "an empty step");
        assert!(num_tokens <= max_num_batched_tokens, "{num_tokens} tokens over {max_num_batched_tokens}");
        assert_eq!(num_tokens as usize, plan.token_ids.len(), "tokens planned and given");
        assert_eq!(num_blocks as usize, plan.new_blocks.len(), "blocks planned and given");
        for (index, sequence) in plan.sequences.iter().enumerate() {
            let twice = plan.sequences[..index].iter().any(|other| other.row == sequence.row);
            assert!(!twice, "row {} twice in a step", sequence.row.0);
        }
    }

    fn change_rows(&mut self, plan: &StepPlan) {
        for row in &plan.released {
            let tables = self.rows[row.0 as usize].take().map_or_else(Vec::new, |state| state.tables);
            for table in &tables {
                table.seen().for_each(|block| self.num_readers[block] -= 1);
            }
        }
        let block_size = self.limits.block_size as usize;
        self.host.swap_out(&plan.swapped_out, &self.slots, block_size);
        for admission in &plan.admitted {
            let row = &mut self.rows[admission.row.0 as usize];
            assert!(row.is_none(), "row {} is admitted and occupied", admission.row.0);
            *row = Some(RowState {
                tables: vec![Table::default(); self.limits.kv_groups.as_slice().len()],
                sampling: Arc::clone(&admission.sampling),
                num_prompt_tokens: admission.num_prompt_tokens,
                known_tokens: admission.known_tokens.clone(),
                sampled: None,
            });
        }
        for swap in &plan.swapped_in {
            let block = swap.device.0;
            assert_eq!(self.num_readers[block as usize], 0, "block {block} is swapped to and read");
        }
        self.host.swap_in(&plan.swapped_in, &mut self.slots, block_size);
        for copy in &plan.block_copies {
            let (from, to) = (copy.from.0 as usize * block_size, copy.to.0 as usize * block_size);
            assert_eq!(self.num_readers[copy.to.0 as usize], 0, "block {} is copied to and read", copy.to.0);
            self.slots.copy_within(from..from + block_size, to);
        }
    }

    /// Appends a sequence's new blocks to its tables; what a group sees of positions before the step.
    fn extend_tables(&mut self, planned: &SequencePlan, new_blocks: &[BlockId]) -> Sight {
        let RunnerLimits { block_size, kv_groups, .. } = self.limits;
        let groups = kv_groups.as_slice();
        let row = self.rows[planned.row.0 as usize].as_mut().expect("a planned row is occupied");
        let (num_each, rest) = (new_blocks.len() / groups.len(), new_blocks.len() % groups.len());
        assert_eq!(rest, 0, "new blocks of row {} are not the same number for each group", planned.row.0);
        let mut sight = Sight::new(kv_groups);
        let end = planned.position + planned.num_tokens;
        for (index, (group, table)) in groups.iter().zip(&mut row.tables).enumerate() {
            let first_seen = group.first_seen(planned.position);
            table.blocks.extend_from_slice(&new_blocks[index * num_each..(index + 1) * num_each]);
            assert_eq!(
                end.div_ceil(block_size) as usize,
                table.blocks.len(),
                "blocks of row {}",
                planned.row.0
            );
            table.num_unseen = table.num_unseen.max((first_seen / block_size) as usize);
            let known = table.blocks.len() - num_each;
            for block in &table.blocks[known.max(table.num_unseen)..] {
                self.num_readers[block.0 as usize] += 1;
            }
            for position in first_seen..planned.position {
                sight.see(index, stored(self.slots[table.slot(position, block_size)].entry, index));
            }
        }
        sight
    }

    /// Stores a token's entry in every group.
    fn store(&mut self, row: Row, position: u32, token_id: u32, entry: u64) {
        let block_size = self.limits.block_size;
        let tables = &self.rows[row.0 as usize].as_ref().expect("a planned row is occupied").tables;
        for (group, table) in tables.iter().enumerate() {
            let slot = table.slot(position, block_size);
            let num_readers = self.num_readers[slot / block_size as usize];
            assert_eq!(
                num_readers, 1,
                "row {} writes position {position} to a block that others read",
                row.0
            );
            self.slots[slot] = Slot { token_id, entry: stored(entry, group) };
        }
    }

    /// Stops reading the blocks that no token from `position` on sees.
    fn drop_unseen(&mut self, row: Row, position: u32) {
        let RunnerLimits { block_size, kv_groups, .. } = self.limits;
        let row = self.rows[row.0 as usize].as_mut().expect("a planned row is occupied");
        for (group, table) in kv_groups.as_slice().iter().zip(&mut row.tables) {
            let num_unseen = ((group.first_seen(position) / block_size) as usize).min(table.blocks.len());
            for block in &table.blocks[table.num_unseen.min(num_unseen)..num_unseen] {
                self.num_readers[block.0 as usize] -= 1;
            }
            table.num_unseen = num_unseen;
        }
    }

    fn run_sequence(
        &mut self,
        planned: &SequencePlan,
        token_ids: &[u32],
        new_blocks: &[BlockId],
    ) -> SequenceOutput {
        let mut sight = self.extend_tables(planned, new_blocks);
        let mut output = SequenceOutput::default();
        let row = self.rows[planned.row.0 as usize].as_mut().expect("a planned row is occupied");
        let sampled = row.sampled.take();
        let fed;
        let token_ids = if planned.num_placeholders > 0 {
            assert!(self.limits.feeds_sampled_tokens, "a placeholder for a runner that keeps no tokens");
            fed = [feed(planned, token_ids, sampled)];
            &fed
        } else {
            token_ids
        };
        for (offset, &token_id) in token_ids.iter().enumerate() {
            let position = planned.position + offset as u32;
            let entry = sight.before_next().entry(token_id);
            self.store(planned.row, position, token_id, entry);
            sight.see_in_all(entry);
            let next = token_ids.get(offset + 1).copied().or(planned.next_prompt_token);
            let row = self.rows[planned.row.0 as usize].as_ref().expect("a planned row is occupied");
            output.prompt_logprobs.extend(prompt_logprobs(
                self.reply,
                row,
                sight.context(),
                position + 1,
                next,
            ));
        }
        let end = planned.position + planned.num_tokens;
        if planned.samples {
            self.choose(planned.row, end, sight.context(), &mut output);
        }
        self.drop_unseen(planned.row, end);
        output
    }

    /// The token at position `end`.
    fn choose(&mut self, row: Row, end: u32, context: Context, output: &mut SequenceOutput) {
        let RunnerLimits { block_size, kv_groups, .. } = self.limits;
        let row = self.rows[row.0 as usize].as_mut().expect("a planned row is occupied");
        // A group that sees the whole sequence, if there is one.
        let groups = kv_groups.as_slice();
        let group = groups.iter().position(|group| *group == KvGroup::Full).unwrap_or(0);
        let table = &row.tables[group];
        let token = |position| self.slots[table.slot(position, block_size)].token_id;
        let index = end - row.num_prompt_tokens;
        let chosen = self.reply.choose(context, &row.sampling, index, row.num_prompt_tokens, token);
        let logprobs = row.sampling.logprobs.map(|num_top| self.reply.logprobs(context, chosen, num_top));
        output.token_ids.push(chosen);
        row.sampled = Some((end, chosen));
        output.logprobs.extend(logprobs);
        let first = groups[group].first_seen(end - 1);
        let stored: Vec<u32> = (first..end).map(token).collect();
        row.look_back(first, stored.into_iter(), chosen);
    }
}

impl Table {
    fn slot(&self, position: u32, block_size: u32) -> usize {
        let block = self.blocks[(position / block_size) as usize];
        assert_ne!(block, BlockId::NONE, "position {position} is seen and not there");
        block.0 as usize * block_size as usize + (position % block_size) as usize
    }

    fn seen(&self) -> impl Iterator<Item = usize> {
        self.blocks[self.num_unseen..].iter().map(|block| block.0 as usize)
    }
}

/// What the placeholder of a share stands for: the token that was sampled last, with its position.
fn feed(planned: &SequencePlan, token_ids: &[u32], sampled: Option<(u32, u32)>) -> u32 {
    assert_eq!((planned.num_placeholders, token_ids), (1, &[0][..]), "one token was sampled");
    let (position, token_id) =
        sampled.expect("a placeholder stands for a token that the row's last step sampled");
    assert_eq!(position, planned.position, "the sampled token is that of another position");
    token_id
}

/// An entry as a group stores it, and back: different in each group, so that mixed-up tables show.
fn stored(entry: u64, group: usize) -> u64 {
    entry ^ (group as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Log-probabilities of the prompt token at `position`, when it is one and they are asked for.
fn prompt_logprobs(
    reply: Reply,
    row: &RowState,
    context: Context,
    position: u32,
    token_id: Option<u32>,
) -> Option<PositionLogprobs> {
    let num_top = row.sampling.prompt_logprobs?;
    if position >= row.num_prompt_tokens {
        return None;
    }
    let token_id =
        token_id.expect("a plan names the prompt token after a chunk when its log-probability is asked for");
    Some(reply.logprobs(context, token_id, num_top))
}

impl ModelRunner for FakeRunner {
    fn limits(&self) -> RunnerLimits {
        self.limits
    }

    fn submit(&mut self, plan: &StepPlan) -> Result<Ticket, StepError> {
        self.check(plan);
        self.last_step = plan.step;
        self.change_rows(plan);
        let (mut token_ids, mut new_blocks) = (plan.token_ids.as_slice(), plan.new_blocks.as_slice());
        let mut output = StepOutput::default();
        for planned in &plan.sequences {
            let (tokens, other_tokens) = token_ids.split_at(planned.num_tokens as usize);
            let (blocks, other_blocks) = new_blocks.split_at(planned.num_new_blocks as usize);
            output.sequences.push(self.run_sequence(planned, tokens, blocks));
            (token_ids, new_blocks) = (other_tokens, other_blocks);
        }
        self.in_flight.push_back((plan.step, output));
        Ok(Ticket(plan.step))
    }

    fn collect(&mut self, ticket: Ticket, output: &mut StepOutput) -> Result<(), StepError> {
        let (step, result) = self.in_flight.pop_front().expect("only submitted steps are collected");
        assert_eq!(step, ticket.0, "steps are collected in order");
        *output = result;
        Ok(())
    }
}
