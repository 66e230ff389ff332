//! Step times of a model on this machine.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use regatta_core::plan::{BlockId, BlockSwap, HostBlockId, StepOutput, StepPlan};
use regatta_core::runner::{ModelRunner, StepError};
use regatta_core::sampling::SamplingParams;
use regatta_core::scheduler::{NewSequence, Scheduler, SchedulerConfig};
use regatta_core::sequence::SequenceId;
use regatta_core::simulate::{Arrival, CostModel, StepLoad};
use regatta_runner::formats::Checkpoint;
use regatta_runner::load::{KvMemory, LoadError, LoadOptions, LoadedModel, load as load_model};

use super::SimulateSettings;
use crate::args::MaxModelLen;
use crate::load_error::ModelLoadError;

/// Sequences at once and their prompt lengths, beside those of the trace: from one short one to many, and a few long ones.
const WORKLOADS: [(u32, u32); 9] =
    [(1, 16), (1, 256), (2, 64), (4, 128), (8, 32), (8, 256), (16, 64), (24, 128), (32, 48)];
/// Tokens that each generates.
const NUM_GENERATED_TOKENS: u32 = 12;
/// Blocks that are copied at once to learn what a copy takes.
const NUM_SWAPPED: u32 = 16;
/// Bytes of an element of the KV cache.
const KV_ELEMENT_BYTES: usize = 2;

/// The model with limits as in the simulation.
pub(super) fn load(settings: &SimulateSettings, model: &Path) -> Result<LoadedModel, ModelLoadError> {
    let scheduler = &settings.scheduler;
    let facts = Checkpoint::open(model).map_err(LoadError::from)?;
    let block_bytes =
        facts.config().kv_bytes_per_token(KV_ELEMENT_BYTES) * u64::from(settings.scheduler.block_size);
    let loaded = load_model(
        model,
        &LoadOptions {
            block_size: scheduler.block_size,
            max_num_seqs: scheduler.max_num_seqs,
            max_num_batched_tokens: scheduler.max_num_batched_tokens,
            max_model_len: match scheduler.max_model_len {
                MaxModelLen::Auto => None,
                MaxModelLen::Tokens(tokens) => Some(tokens),
            },
            kv_memory: KvMemory::Blocks(settings.num_blocks),
            swap_bytes: u64::from(settings.num_host_blocks) * block_bytes,
            threads: settings.threads,
            ..LoadOptions::default()
        },
    );
    Ok(loaded?)
}

/// What was measured so far.
#[derive(Default)]
pub(super) struct Calibration {
    /// Loads of steps and their times in seconds.
    steps: Vec<(StepLoad, f64)>,
    /// Times in seconds of copying a block, where there is host memory.
    swaps: Vec<f64>,
}

impl Calibration {
    /// Runs copies, and steps of many kinds as far as they fit.
    pub(super) fn add(
        &mut self,
        runner: &mut dyn ModelRunner,
        arrivals: &[Arrival],
    ) -> Result<(), StepError> {
        measure_swaps(runner, &mut self.swaps)?;
        measure_steps(runner, &typical_lengths(arrivals), &mut self.steps)
    }

    /// The model that fits best.
    pub(super) fn cost(&self) -> CostModel {
        let fastest = self.swaps.iter().copied().min_by(f64::total_cmp).unwrap_or(0.0);
        CostModel { swap_block: fastest * 1e6, ..CostModel::fit(&self.steps) }
    }
}

/// Copies blocks to host memory and back, before anything runs.
fn measure_swaps(runner: &mut dyn ModelRunner, swaps: &mut Vec<f64>) -> Result<(), StepError> {
    let limits = runner.limits();
    let num_blocks = NUM_SWAPPED.min(limits.num_blocks).min(limits.num_host_blocks);
    if num_blocks == 0 {
        return Ok(());
    }
    let pairs = (0..num_blocks).map(|i| BlockSwap { device: BlockId(i), host: HostBlockId(i) });
    let swapped_out: Vec<_> = pairs.collect();
    let plan = StepPlan { swapped_in: swapped_out.clone(), swapped_out, ..StepPlan::default() };
    // The first time also pays for memory that was never touched.
    for _ in 0..3 {
        let start = Instant::now();
        let ticket = runner.submit(&plan)?;
        runner.collect(ticket, &mut StepOutput::default())?;
        swaps.push(start.elapsed().as_secs_f64() / f64::from(2 * num_blocks));
    }
    Ok(())
}

/// The deciles of prompt lengths: step times are no straight line in them, so that what is simulated is measured.
fn typical_lengths(arrivals: &[Arrival]) -> Vec<u32> {
    let mut lengths: Vec<u32> = arrivals.iter().map(|arrival| arrival.prompt.len() as u32).collect();
    lengths.sort_unstable();
    (1..10).filter_map(|tenth| lengths.get(lengths.len() * tenth / 10).copied()).collect()
}

/// Adds loads and times of steps.
fn measure_steps(
    runner: &mut dyn ModelRunner,
    lengths: &[u32],
    steps: &mut Vec<(StepLoad, f64)>,
) -> Result<(), StepError> {
    let limits = runner.limits();
    // Each workload has a scheduler of its own; the runner wants its steps numbered in order and its rows empty.
    let config = SchedulerConfig {
        max_model_len: limits.num_blocks.saturating_mul(limits.block_size),
        enable_prefix_caching: false,
        ..SchedulerConfig::default()
    };
    let mut scheduler = Scheduler::new(config, limits);
    let (mut plan, mut output, mut updates) = (StepPlan::default(), StepOutput::default(), Vec::new());
    let mut num_sequences = 0;
    for (count, prompt_len) in WORKLOADS.into_iter().chain(lengths.iter().map(|&length| (1, length))) {
        for _ in 0..count.min(limits.max_num_seqs) {
            let sampling = SamplingParams {
                max_tokens: NUM_GENERATED_TOKENS,
                temperature: 0.0,
                ..SamplingParams::default()
            };
            let prompt: Vec<u32> =
                (0..prompt_len).map(|i| (num_sequences as u32 * 31 + i * 7) % 200).collect();
            let new = NewSequence::new(SequenceId(num_sequences), prompt.into(), Arc::new(sampling));
            num_sequences += 1;
            // What does not fit this pool will not be simulated either.
            let _ = scheduler.add(new);
        }
        while scheduler.schedule(&mut plan) {
            let start = Instant::now();
            let ticket = runner.submit(&plan)?;
            runner.collect(ticket, &mut output)?;
            steps.push((StepLoad::of(&plan), start.elapsed().as_secs_f64()));
            scheduler.settle(&plan, &mut output, &mut updates);
            updates.clear();
        }
    }
    Ok(())
}
