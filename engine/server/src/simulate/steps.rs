//! Times of single steps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use regatta_core::plan::{StepOutput, StepPlan};
use regatta_core::runner::{ModelRunner, StepError};
use regatta_core::sampling::SamplingParams;
use regatta_core::scheduler::{NewSequence, Scheduler, SchedulerConfig, Update};
use regatta_core::sequence::SequenceId;
use regatta_core::simulate::StepLoad;

/// A pause in which threads go to sleep and caches to others: longer ones cost no more.
const PAUSE: Duration = Duration::from_millis(100);
/// Tokens that each sequence generates.
const NUM_GENERATED_TOKENS: u32 = 12;
/// Steps between arrivals, so that prompts come while some sequences decode.
const NUM_STEPS_BETWEEN: u32 = 3;

/// Runs sequences to their end, without a prefix cache, and notes what each step took.
pub(super) struct StepTimer<'a> {
    runner: &'a mut dyn ModelRunner,
    scheduler: Scheduler,
    plan: StepPlan,
    output: StepOutput,
    updates: Vec<Update>,
    num_sequences: u64,
    paused: bool,
    /// Loads of steps and their times in seconds.
    steps: &'a mut Vec<(StepLoad, f64)>,
}

impl<'a> StepTimer<'a> {
    pub(super) fn new(runner: &'a mut dyn ModelRunner, steps: &'a mut Vec<(StepLoad, f64)>) -> Self {
        let limits = runner.limits();
        let config = SchedulerConfig {
            max_model_len: limits.num_blocks.saturating_mul(limits.block_size),
            enable_prefix_caching: false,
            ..SchedulerConfig::default()
        };
        Self {
            runner,
            scheduler: Scheduler::new(config, limits),
            plan: StepPlan::default(),
            output: StepOutput::default(),
            updates: Vec::new(),
            num_sequences: 0,
            paused: false,
            steps,
        }
    }

    /// Lets the machine rest; the next step is one after a pause.
    pub(super) fn pause(&mut self) {
        std::thread::sleep(PAUSE);
        self.paused = true;
    }

    /// So many prompts of one length that arrive together, as far as there are rows.
    pub(super) fn run_at_once(&mut self, count: u32, prompt_len: u32) -> Result<(), StepError> {
        (0..count.min(self.runner.limits().max_num_seqs)).for_each(|_| self.add(prompt_len));
        self.run_to_end()
    }

    /// A prompt of each length, which arrives while those before it decode.
    pub(super) fn run_one_after_another(&mut self, prompt_lens: &[u32]) -> Result<(), StepError> {
        for &prompt_len in prompt_lens {
            self.add(prompt_len);
            for _ in 0..NUM_STEPS_BETWEEN {
                self.step()?;
            }
        }
        self.run_to_end()
    }

    fn add(&mut self, prompt_len: u32) {
        let id = SequenceId(self.num_sequences);
        self.num_sequences += 1;
        let prompt: Vec<u32> = (0..prompt_len).map(|i| (id.0 as u32 * 31 + i * 7) % 200).collect();
        let (max_tokens, temperature) = (NUM_GENERATED_TOKENS, 0.0);
        let sampling = SamplingParams { max_tokens, temperature, ..SamplingParams::default() };
        // What does not fit this pool will not be simulated either.
        let _ = self.scheduler.add(NewSequence::new(id, prompt.into(), Arc::new(sampling)));
    }

    fn run_to_end(&mut self) -> Result<(), StepError> {
        while self.step()? {}
        Ok(())
    }

    /// Runs a step; `false` when there is nothing to run.
    fn step(&mut self) -> Result<bool, StepError> {
        if !self.scheduler.schedule(&mut self.plan) {
            return Ok(false);
        }
        let after_idle = if std::mem::take(&mut self.paused) { 1.0 } else { 0.0 };
        let start = Instant::now();
        let ticket = self.runner.submit(&self.plan)?;
        self.runner.collect(ticket, &mut self.output)?;
        let seconds = start.elapsed().as_secs_f64();
        self.steps.push((StepLoad { after_idle, ..StepLoad::of(&self.plan) }, seconds));
        self.scheduler.settle(&self.plan, &mut self.output, &mut self.updates);
        self.updates.clear();
        Ok(true)
    }
}
