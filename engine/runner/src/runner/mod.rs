//! Runs step plans on one machine.

mod rows;

use regatta_core::plan::{BlockSwap, StepOutput, StepPlan};
use regatta_core::runner::{ModelRunner, RunnerLimits, StepError, Ticket};

use crate::backend::{Backend, BackendError, Batch, KvShape, KvType};
use crate::model::{Activations, Llama};
use crate::sample::{Sampler, logprobs};
use rows::Rows;

/// A model with its KV memory, in this process. A step runs to its end within [`ModelRunner::submit`].
pub struct LocalRunner<B: Backend> {
    backend: B,
    model: Llama<B>,
    cache: B::KvCache,
    host: B::HostCache,
    activations: Activations<B>,
    limits: RunnerLimits,
    rows: Rows,
    sampler: Sampler,
    batch: Batch,
    copies: Vec<(u32, u32)>,
    wanted: Wanted,
    /// A step that was submitted and not yet collected.
    finished: Option<(u64, StepOutput)>,
    /// Memory of a former output.
    spare: StepOutput,
}

/// Whose logits a step needs, and what for.
#[derive(Default)]
struct Wanted {
    /// Rows of the batch.
    rows: Vec<usize>,
    /// For each of `rows`.
    uses: Vec<Use>,
}

/// One use of a row of logits.
struct Use {
    /// Index in [`StepPlan::sequences`].
    sequence: usize,
    /// Position of the token that the logits are about.
    position: u32,
    /// The prompt's token there; absent: one is to be chosen.
    prompt_token: Option<u32>,
}

impl<B: Backend> LocalRunner<B> {
    /// Allocates KV memory and the buffers of the largest step. The groups in `limits` are those of the model.
    ///
    /// # Errors
    /// Memory could not be had.
    pub fn new(
        backend: B,
        model: Llama<B>,
        kv_type: KvType,
        max_model_len: u32,
        limits: RunnerLimits,
    ) -> Result<Self, BackendError> {
        let config = model.config();
        let limits = RunnerLimits { kv_groups: model.kv_layout().groups, max_in_flight: 1, ..limits };
        let shape = KvShape {
            layers: model.kv_layout().layers_per_group,
            kv_heads: config.num_kv_heads,
            head_dim: config.head_dim,
            num_blocks: limits.num_blocks as usize,
            block_size: limits.block_size as usize,
            ty: kv_type,
        };
        Ok(Self {
            cache: backend.kv_cache(shape)?,
            host: backend.host_cache(KvShape { num_blocks: limits.num_host_blocks as usize, ..shape })?,
            activations: model.activations(&backend, limits.max_num_batched_tokens as usize)?,
            rows: Rows::new(limits, max_model_len, config.vocab_size as u32),
            backend,
            model,
            limits,
            sampler: Sampler::default(),
            batch: Batch::default(),
            copies: Vec::new(),
            wanted: Wanted::default(),
            finished: None,
            spare: StepOutput::default(),
        })
    }

    fn run(&mut self, plan: &StepPlan) -> Result<StepOutput, String> {
        self.rows.admit(plan)?;
        self.swap(plan)?;
        self.copy_blocks(plan)?;
        self.rows.fill(plan, &mut self.batch)?;
        self.want(plan);
        let (backend, activations) = (&self.backend, &mut self.activations);
        if !plan.token_ids.is_empty() {
            let rows = &self.wanted.rows;
            self.model.forward(backend, &plan.token_ids, &self.batch, rows, &mut self.cache, activations);
        }
        let mut output = std::mem::take(&mut self.spare);
        empty(&mut output, plan.sequences.len());
        let (rows, sampler, uses) = (&mut self.rows, &mut self.sampler, &self.wanted.uses);
        self.model.logits(backend, uses.len(), activations, |index, logits| {
            let Use { sequence, position, prompt_token } = uses[index];
            let output = &mut output.sequences[sequence];
            let row = rows.get_mut(plan.sequences[sequence].row);
            if let Some(token) = prompt_token {
                let num_top = row.sampling.prompt_logprobs.unwrap_or(0);
                output.prompt_logprobs.push(logprobs(logits, token, num_top));
            } else if let Some(sampled) = sampler.sample(logits, row.place(position)) {
                row.history.iter_mut().for_each(|history| history.push(sampled.token_id));
                output.token_ids.push(sampled.token_id);
                output.logprobs.extend(sampled.logprobs);
            }
        });
        Ok(output)
    }

    fn swap(&mut self, plan: &StepPlan) -> Result<(), String> {
        self.rows.check_swaps(&plan.swapped_out)?;
        self.rows.check_swaps(&plan.swapped_in)?;
        if !plan.swapped_out.is_empty() {
            self.list_copies(&plan.swapped_out);
            self.backend.swap_out(&self.cache, &mut self.host, &self.copies);
        }
        if !plan.swapped_in.is_empty() {
            self.list_copies(&plan.swapped_in);
            self.backend.swap_in(&mut self.cache, &self.host, &self.copies);
        }
        Ok(())
    }

    fn list_copies(&mut self, swaps: &[BlockSwap]) {
        self.copies.clear();
        self.copies.extend(swaps.iter().map(|swap| (swap.device.0, swap.host.0)));
    }

    fn copy_blocks(&mut self, plan: &StepPlan) -> Result<(), String> {
        self.rows.check_blocks(plan.block_copies.iter().flat_map(|copy| [copy.from, copy.to]))?;
        self.copies.clear();
        self.copies.extend(plan.block_copies.iter().map(|copy| (copy.from.0, copy.to.0)));
        if !self.copies.is_empty() {
            self.backend.copy_blocks(&mut self.cache, &self.copies);
        }
        Ok(())
    }

    /// Lists the rows whose logits are needed: those before a prompt token whose log-probability is asked for, and
    /// the last of each sequence that gets a new token.
    fn want(&mut self, plan: &StepPlan) {
        let Wanted { rows, uses } = &mut self.wanted;
        rows.clear();
        uses.clear();
        let mut first = 0;
        for (sequence, planned) in plan.sequences.iter().enumerate() {
            let tokens = &plan.token_ids[first..first + planned.num_tokens as usize];
            let row = self.rows.get(planned.row);
            if row.sampling.prompt_logprobs.is_some() {
                let next = tokens[1..].iter().copied().chain(planned.next_prompt_token);
                for (offset, (position, token)) in
                    (planned.position + 1..row.num_prompt_tokens).zip(next).enumerate()
                {
                    rows.push(first + offset);
                    uses.push(Use { sequence, position, prompt_token: Some(token) });
                }
            }
            first += tokens.len();
            if planned.samples {
                rows.push(first - 1);
                let position = planned.position + planned.num_tokens;
                uses.push(Use { sequence, position, prompt_token: None });
            }
        }
    }
}

/// Makes room for the results of `num_sequences` and keeps the memory of former ones.
fn empty(output: &mut StepOutput, num_sequences: usize) {
    output.sequences.resize_with(num_sequences, Default::default);
    for sequence in &mut output.sequences {
        sequence.token_ids.clear();
        sequence.logprobs.clear();
        sequence.prompt_logprobs.clear();
    }
}

impl<B: Backend> ModelRunner for LocalRunner<B> {
    fn limits(&self) -> RunnerLimits {
        self.limits
    }

    fn submit(&mut self, plan: &StepPlan) -> Result<Ticket, StepError> {
        let step = plan.step;
        if self.finished.is_some() {
            let reason = "the step before it has not been collected".into();
            return Err(StepError { step, reason });
        }
        match self.run(plan) {
            Ok(output) => {
                self.finished = Some((step, output));
                Ok(Ticket(step))
            }
            Err(reason) => {
                self.rows.abandon(plan);
                Err(StepError { step, reason })
            }
        }
    }

    fn collect(&mut self, ticket: Ticket, output: &mut StepOutput) -> Result<(), StepError> {
        match self.finished.take() {
            Some((step, result)) if step == ticket.0 => {
                self.spare = std::mem::replace(output, result);
                Ok(())
            }
            other => {
                self.finished = other;
                Err(StepError {
                    step: ticket.0,
                    reason: "it was not submitted, or is already collected".into(),
                })
            }
        }
    }
}
