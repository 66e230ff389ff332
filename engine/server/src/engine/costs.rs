//! What preempting costs on this machine, measured from the steps that run.

use std::time::{Duration, Instant};

use regatta_core::plan::{BlockId, BlockSwap, HostBlockId, StepOutput, StepPlan};
use regatta_core::runner::{ModelRunner, StepError};
use regatta_core::scheduler::PreemptionCosts;

/// Blocks that are copied to learn what a copy costs.
const NUM_PROBED: u32 = 16;
/// How much of what is known of prefill counts beside the next step.
const MEMORY: f64 = 0.9;
/// Smaller changes are not worth telling.
const TOLD: f64 = 0.1;

/// Learns, and says when there is something new.
#[derive(Debug, Default)]
pub(super) struct CostMeter {
    swap_ns_per_block: Option<f64>,
    prefill_tokens: f64,
    prefill_ns: f64,
    told: Option<PreemptionCosts>,
}

impl CostMeter {
    /// A meter for a runner on which nothing runs yet: copies a few blocks to host memory and back.
    ///
    /// # Errors
    /// The runner's.
    pub(super) fn probe(runner: &mut dyn ModelRunner) -> Result<Self, StepError> {
        let limits = runner.limits();
        let num_blocks = NUM_PROBED.min(limits.num_blocks).min(limits.num_host_blocks);
        if num_blocks == 0 {
            return Ok(Self::default());
        }
        let swaps = (0..num_blocks).map(|i| BlockSwap { device: BlockId(i), host: HostBlockId(i) });
        let swapped_out: Vec<_> = swaps.collect();
        let plan = StepPlan { swapped_in: swapped_out.clone(), swapped_out, ..StepPlan::default() };
        let mut time = Duration::ZERO;
        // The first time also pays for memory that was never touched.
        for _ in 0..2 {
            let start = Instant::now();
            let ticket = runner.submit(&plan)?;
            runner.collect(ticket, &mut StepOutput::default())?;
            time = start.elapsed();
        }
        let swap_ns_per_block = Some(time.as_nanos() as f64 / f64::from(2 * num_blocks));
        Ok(Self { swap_ns_per_block, ..Self::default() })
    }

    /// Takes in a step; new costs, if they have changed.
    pub(super) fn step(&mut self, plan: &StepPlan, time: Duration) -> Option<PreemptionCosts> {
        let swap_ns_per_block = self.swap_ns_per_block?;
        let is_prefill = plan.token_ids.len() > 2 * plan.sequences.len();
        if !is_prefill || !plan.swapped_out.is_empty() || !plan.swapped_in.is_empty() {
            return None;
        }
        self.prefill_tokens = self.prefill_tokens * MEMORY + plan.token_ids.len() as f64;
        self.prefill_ns = self.prefill_ns * MEMORY + time.as_nanos() as f64;
        let costs = PreemptionCosts {
            recompute_ns_per_token: (self.prefill_ns / self.prefill_tokens) as u64,
            swap_ns_per_block: swap_ns_per_block as u64,
        };
        let is_known = self.told.is_some_and(|told| {
            let (was, is) = (told.recompute_ns_per_token as f64, costs.recompute_ns_per_token as f64);
            (was - is).abs() <= TOLD * was
        });
        if is_known {
            return None;
        }
        self.told = Some(costs);
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::plan::{Row, SequencePlan};

    fn prefill(num_tokens: u32) -> StepPlan {
        let sequence = SequencePlan {
            row: Row(0),
            position: 0,
            num_tokens,
            num_placeholders: 0,
            num_new_blocks: 0,
            samples: false,
            next_prompt_token: None,
        };
        let token_ids = vec![0; num_tokens as usize];
        StepPlan { sequences: vec![sequence], token_ids, ..StepPlan::default() }
    }

    #[test]
    fn costs_are_told_when_they_are_new_and_when_they_change() {
        let mut meter = CostMeter { swap_ns_per_block: Some(50.0), ..CostMeter::default() };
        let told = meter.step(&prefill(100), Duration::from_nanos(1000));
        assert_eq!(told, Some(PreemptionCosts { recompute_ns_per_token: 10, swap_ns_per_block: 50 }));
        assert_eq!(meter.step(&prefill(100), Duration::from_nanos(1010)), None);
        let slower = meter.step(&prefill(100), Duration::from_nanos(4000)).unwrap();
        assert!(slower.recompute_ns_per_token > 15, "{slower:?}");
    }

    #[test]
    fn decode_and_swapping_steps_say_nothing_of_prefill() {
        let mut meter = CostMeter { swap_ns_per_block: Some(50.0), ..CostMeter::default() };
        assert_eq!(meter.step(&prefill(1), Duration::from_nanos(1000)), None);
        let swap = BlockSwap { device: BlockId(0), host: HostBlockId(0) };
        let plan = StepPlan { swapped_in: vec![swap], ..prefill(100) };
        assert_eq!(meter.step(&plan, Duration::from_nanos(1000)), None);
    }

    #[test]
    fn without_host_memory_nothing_is_measured() {
        let mut meter = CostMeter::default();
        assert_eq!(meter.step(&prefill(100), Duration::from_nanos(1000)), None);
    }
}
