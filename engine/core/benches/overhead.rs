//! What scheduling and settling cost beside a runner that takes no time: `cargo bench -p regatta-core`.

use std::collections::VecDeque;
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
    max_in_flight: usize,
    /// Oldest first.
    in_flight: VecDeque<StepPlan>,
    /// Memory of former plans.
    spare: Vec<StepPlan>,
    output: StepOutput,
    updates: Vec<Update>,
}

impl Bench {
    fn new(
        max_in_flight: u32,
        max_num_seqs: u32,
        budget: u32,
        num_sequences: u64,
        prompt_len: u32,
        max_tokens: u32,
    ) -> Self {
        let limits = RunnerLimits {
            block_size: BLOCK_SIZE,
            num_blocks: num_sequences as u32 * (prompt_len + max_tokens).div_ceil(BLOCK_SIZE) + max_num_seqs,
            kv_groups: KvGroups::FULL,
            num_host_blocks: 0,
            max_num_seqs,
            max_num_batched_tokens: budget,
            max_in_flight,
            feeds_sampled_tokens: true,
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
        Self {
            scheduler,
            max_in_flight: max_in_flight as usize,
            in_flight: VecDeque::new(),
            spare: Vec::new(),
            output: StepOutput::default(),
            updates: Vec::new(),
        }
    }

    /// One step of the engine thread: plans one, and settles the oldest where as many as may be are in flight. How many
    /// tokens are planned, and how long it took without the runner.
    fn step(&mut self) -> (usize, Duration) {
        let mut plan = self.spare.pop().unwrap_or_default();
        let start = Instant::now();
        let scheduled = self.scheduler.schedule(&mut plan);
        let planned = start.elapsed();
        assert!(scheduled, "the bench has work for all its steps");
        let num_tokens = plan.token_ids.len();
        self.in_flight.push_back(plan);
        if self.in_flight.len() < self.max_in_flight {
            return (num_tokens, planned);
        }
        let oldest = self.in_flight.pop_front().expect("a step has just been planned");
        run(&oldest, &mut self.output);
        let start = Instant::now();
        self.scheduler.settle(&oldest, &mut self.output, &mut self.updates);
        self.updates.clear();
        let settled = start.elapsed();
        self.spare.push(oldest);
        (num_tokens, planned + settled)
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

fn decode(num_sequences: u32, max_in_flight: u32) {
    let mut bench = Bench::new(max_in_flight, num_sequences, 8192, u64::from(num_sequences), 32, 600);
    while bench.step().0 != num_sequences as usize {}
    let mut times = Vec::with_capacity(512);
    let info = allocation_counter::measure(|| times.extend((0..512).map(|_| bench.step().1)));
    let median = median_us(&mut times);
    let rate = f64::from(num_sequences) / median;
    println!(
        "decode, {num_sequences} sequences, {max_in_flight} in flight: {rate:.2} million tokens/s (median step \
         {median:.1} us), {} allocations",
        info.count_total
    );
}

fn prefill() {
    let (budget, num_chunks) = (8192, 64);
    let mut bench = Bench::new(1, 256, budget, 16, budget * 4, 1);
    let mut times: Vec<Duration> = (0..num_chunks).map(|_| bench.step().1).collect();
    let median = median_us(&mut times);
    println!("prefill, chunks of {budget} tokens: median step {median:.1} us");
}

/// The machine's noise is in the tail, so the median is what is reported.
fn median_us(times: &mut [Duration]) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn main() {
    for max_in_flight in [1, 2] {
        decode(256, max_in_flight);
        decode(4096, max_in_flight);
    }
    prefill();
}
