//! What scheduling and settling cost beside a runner that takes no time: `cargo bench -p regatta-core`.

use std::time::{Duration, Instant};

use regatta_core::kv::KvGroups;
use regatta_core::plan::{SequenceOutput, StepOutput, StepPlan};
use regatta_core::runner::RunnerLimits;
use regatta_core::sampling::SamplingParams;
use regatta_core::scheduler::{NewSequence, Scheduler, SchedulerConfig, Update};
use regatta_core::sequence::SequenceId;

const BLOCK_SIZE: u32 = 16;

struct Bench {
    scheduler: Scheduler,
    plan: StepPlan,
    output: StepOutput,
    updates: Vec<Update>,
}

impl Bench {
    fn new(max_num_seqs: u32, budget: u32, num_sequences: u64, prompt_len: u32, max_tokens: u32) -> Self {
        let limits = RunnerLimits {
            block_size: BLOCK_SIZE,
            num_blocks: num_sequences as u32 * (prompt_len + max_tokens).div_ceil(BLOCK_SIZE) + max_num_seqs,
            kv_groups: KvGroups::FULL,
            num_host_blocks: 0,
            max_num_seqs,
            max_num_batched_tokens: budget,
            max_in_flight: 1,
        };
        let config = SchedulerConfig {
            max_num_seqs,
            max_num_batched_tokens: budget,
            max_model_len: prompt_len + max_tokens,
            ..SchedulerConfig::default()
        };
        let mut scheduler = Scheduler::new(config, limits);
        for id in 0..num_sequences {
            // Of different lengths, so that some fill a block in every step.
            let prompt = (id as u32 % BLOCK_SIZE..prompt_len).map(|i| (id as u32) << 16 | i).collect();
            let sampling = SamplingParams { max_tokens, ..SamplingParams::default() };
            let new = NewSequence::new(SequenceId(id), prompt, sampling.into());
            scheduler.add(new).expect("the pool is large enough");
        }
        Self { scheduler, plan: StepPlan::default(), output: StepOutput::default(), updates: Vec::new() }
    }

    /// One step of the engine thread: how long it took without the runner.
    fn step(&mut self) -> Duration {
        let start = Instant::now();
        let scheduled = self.scheduler.schedule(&mut self.plan);
        let planned = start.elapsed();
        assert!(scheduled, "the bench has work for all its steps");
        run(&self.plan, &mut self.output);
        let start = Instant::now();
        self.scheduler.settle(&self.plan, &mut self.output, &mut self.updates);
        self.updates.clear();
        planned + start.elapsed()
    }
}

/// Chooses token 1 for all.
fn run(plan: &StepPlan, output: &mut StepOutput) {
    output.sequences.resize_with(plan.sequences.len(), SequenceOutput::default);
    for (planned, result) in plan.sequences.iter().zip(&mut output.sequences) {
        result.token_ids.clear();
        result.token_ids.extend(planned.samples.then_some(1));
    }
}

fn decode(num_sequences: u32) {
    let mut bench = Bench::new(num_sequences, 8192, u64::from(num_sequences), 32, 600);
    while bench.plan.token_ids.len() != num_sequences as usize {
        bench.step();
    }
    let mut times = Vec::with_capacity(512);
    let info = allocation_counter::measure(|| times.extend((0..512).map(|_| bench.step())));
    let median = median_us(&mut times);
    let rate = f64::from(num_sequences) / median;
    println!(
        "decode, {num_sequences} sequences: {rate:.2} million tokens/s (median step {median:.1} us), {} allocations",
        info.count_total
    );
}

fn prefill() {
    let (budget, num_chunks) = (8192, 64);
    let mut bench = Bench::new(256, budget, 16, budget * 4, 1);
    let mut times: Vec<Duration> = (0..num_chunks).map(|_| bench.step()).collect();
    let median = median_us(&mut times);
    println!("prefill, chunks of {budget} tokens: median step {median:.1} us");
}

/// The machine's noise is in the tail, so the median is what is reported.
fn median_us(times: &mut [Duration]) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn main() {
    decode(256);
    decode(4096);
    prefill();
}
