//! A runner without a model.

use std::collections::VecDeque;
use std::sync::Arc;

use super::reply::{Context, Reply};
use crate::plan::{
    BlockId, KnownTokens, PositionLogprobs, SequenceOutput, SequencePlan, StepOutput, StepPlan,
};
use crate::runner::{ModelRunner, RunnerLimits, StepError, Ticket};
use crate::sampling::SamplingParams;

/// One position of KV: the token, and a value that depends on all positions up to it.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    token_id: u32,
    entry: u64,
}

#[derive(Debug)]
struct RowState {
    table: Vec<BlockId>,
    sampling: Arc<SamplingParams>,
    num_prompt_tokens: u32,
    known_tokens: Option<KnownTokens>,
}

impl RowState {
    /// Checks what sampling would look back at against the tokens that are stored, and notes the next one.
    fn look_back(&mut self, stored: impl Iterator<Item = u32>, chosen: u32) {
        assert_eq!(self.known_tokens.is_some(), self.sampling.looks_back(), "tokens are given where needed");
        let Some(known) = &mut self.known_tokens else { return };
        let all = known.prompt.iter().chain(&known.generated).copied();
        assert!(stored.eq(all), "the tokens that sampling looks back at are not those of the sequence");
        known.generated.push(chosen);
    }
}

/// Runs step plans over shadow KV memory, and panics, with the reason, on a plan that breaks the contract of
/// [`StepPlan`] or this runner's limits.
#[derive(Debug)]
pub struct FakeRunner {
    limits: RunnerLimits,
    reply: Reply,
    slots: Vec<Slot>,
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
        assert!(plan.step > self.last_step, "step {} after step {}", plan.step, self.last_step);
        assert!(self.in_flight.len() < max_in_flight as usize, "more than {max_in_flight} steps in flight");
        assert!(!plan.sequences.is_empty(), "an empty step");
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
            self.rows[row.0 as usize] = None;
        }
        for admission in &plan.admitted {
            let row = &mut self.rows[admission.row.0 as usize];
            assert!(row.is_none(), "row {} is admitted and occupied", admission.row.0);
            *row = Some(RowState {
                table: Vec::new(),
                sampling: Arc::clone(&admission.sampling),
                num_prompt_tokens: admission.num_prompt_tokens,
                known_tokens: admission.known_tokens.clone(),
            });
        }
        let block_size = self.limits.block_size as usize;
        for copy in &plan.block_copies {
            let from = copy.from.0 as usize * block_size;
            self.slots.copy_within(from..from + block_size, copy.to.0 as usize * block_size);
        }
    }

    fn run_sequence(
        &mut self,
        planned: &SequencePlan,
        token_ids: &[u32],
        new_blocks: &[BlockId],
    ) -> SequenceOutput {
        let block_size = self.limits.block_size;
        let row = self.rows[planned.row.0 as usize].as_mut().expect("a planned row is occupied");
        row.table.extend_from_slice(new_blocks);
        let end = planned.position + planned.num_tokens;
        assert_eq!(end.div_ceil(block_size) as usize, row.table.len(), "blocks of row {}", planned.row.0);
        let row = self.rows[planned.row.0 as usize].as_ref().expect("a planned row is occupied");
        let slot_of = |position: u32| {
            let block = row.table[(position / block_size) as usize];
            block.0 as usize * block_size as usize + (position % block_size) as usize
        };

        let mut output = SequenceOutput::default();
        let mut context = Context::default();
        for position in 0..planned.position {
            context = context.with(self.slots[slot_of(position)].entry);
        }
        for (offset, &token_id) in token_ids.iter().enumerate() {
            let position = planned.position + offset as u32;
            let entry = context.entry(token_id);
            self.slots[slot_of(position)] = Slot { token_id, entry };
            context = context.with(entry);
            let next = token_ids.get(offset + 1).copied().or(planned.next_prompt_token);
            output.prompt_logprobs.extend(prompt_logprobs(self.reply, row, context, position + 1, next));
        }
        if planned.samples {
            let index = end - row.num_prompt_tokens;
            let prompt_token = |position| self.slots[slot_of(position)].token_id;
            let chosen =
                self.reply.choose(context, &row.sampling, index, row.num_prompt_tokens, prompt_token);
            let logprobs = row.sampling.logprobs.map(|num_top| self.reply.logprobs(context, chosen, num_top));
            output.token_ids.push(chosen);
            output.logprobs.extend(logprobs);
            let stored: Vec<u32> = (0..end).map(|position| self.slots[slot_of(position)].token_id).collect();
            let row = self.rows[planned.row.0 as usize].as_mut().expect("a planned row is occupied");
            row.look_back(stored.into_iter(), chosen);
        }
        output
    }
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
