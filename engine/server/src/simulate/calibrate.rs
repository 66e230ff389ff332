//! Step times of a model on this machine.

use std::path::Path;
use std::time::Instant;

use regatta_core::plan::{BlockId, BlockSwap, HostBlockId, StepOutput, StepPlan};
use regatta_core::runner::{ModelRunner, StepError};
use regatta_core::simulate::{Arrival, CostModel, StepLoad};
use regatta_runner::formats::Checkpoint;
use regatta_runner::load::{KvMemory, LoadError, LoadOptions, LoadedModel, load as load_model};

use super::SimulateSettings;
use super::steps::StepTimer;
use crate::args::MaxModelLen;
use crate::load_error::ModelLoadError;

/// Sequences at once and their prompt lengths, beside those of the trace: from one short one to many, and a few long ones.
const WORKLOADS: [(u32, u32); 9] =
    [(1, 16), (1, 256), (2, 64), (4, 128), (8, 32), (8, 256), (16, 64), (24, 128), (32, 48)];
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
        let mut timer = StepTimer::new(runner, &mut self.steps);
        for (count, prompt_len) in WORKLOADS {
            timer.run_at_once(count, prompt_len)?;
        }
        let lengths = typical_lengths(arrivals);
        for &prompt_len in &lengths {
            timer.run_at_once(1, prompt_len)?;
            timer.pause();
            timer.run_at_once(1, prompt_len)?;
        }
        timer.run_one_after_another(&lengths)
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
