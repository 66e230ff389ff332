//! Step times of a model on this machine.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use regatta_core::plan::{StepOutput, StepPlan};
use regatta_core::runner::{ModelRunner, StepError};
use regatta_core::sampling::SamplingParams;
use regatta_core::scheduler::{NewSequence, Scheduler, SchedulerConfig};
use regatta_core::sequence::SequenceId;
use regatta_core::simulate::StepLoad;
use regatta_runner::load::{KvMemory, LoadError, LoadOptions, LoadedModel, load as load_model};

use super::SimulateSettings;
use crate::args::MaxModelLen;

/// Sequences at once and their prompt lengths: from one short one to many, and a few long ones.
const WORKLOADS: [(u32, u32); 9] =
    [(1, 16), (1, 256), (2, 64), (4, 128), (8, 32), (8, 256), (16, 64), (24, 128), (32, 48)];
/// Tokens that each generates.
const NUM_GENERATED_TOKENS: u32 = 12;

/// The model with limits as in the simulation.
pub(super) fn load(settings: &SimulateSettings, model: &Path) -> Result<LoadedModel, LoadError> {
    let scheduler = &settings.scheduler;
    load_model(
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
            threads: settings.threads,
            ..LoadOptions::default()
        },
    )
}

/// Runs steps of many kinds, as far as they fit, and adds their loads and times.
pub(super) fn measure(
    runner: &mut dyn ModelRunner,
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
    for (count, prompt_len) in WORKLOADS {
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
