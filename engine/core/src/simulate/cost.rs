//! How long a step takes.

use serde::{Deserialize, Serialize};

use super::fit;
use crate::plan::StepPlan;
use crate::scheduler::PreemptionCosts;

/// What a step does, as far as its time depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepLoad {
    /// Tokens of sequences that compute known tokens.
    pub prefill_tokens: f64,
    /// Pairs of a prefill token and a position that it attends to.
    pub prefill_context: f64,
    /// Sequences that compute their latest token only.
    pub decode_sequences: f64,
    /// Positions that those attend to.
    pub decode_context: f64,
    /// KV blocks copied to host memory or back.
    pub swapped_blocks: f64,
    /// 1 when nothing ran before it, 0 when it follows another step at once.
    pub after_idle: f64,
}

impl StepLoad {
    /// The load of a plan that follows another step at once.
    pub fn of(plan: &StepPlan) -> Self {
        let num_swapped = plan.swapped_out.len() + plan.swapped_in.len();
        let mut load = Self { swapped_blocks: num_swapped as f64, ..Self::default() };
        for planned in &plan.sequences {
            let (position, num_tokens) = (f64::from(planned.position), f64::from(planned.num_tokens));
            let context = num_tokens * position + num_tokens * (num_tokens + 1.0) / 2.0;
            if planned.num_tokens == 1 {
                load.decode_sequences += 1.0;
                load.decode_context += context;
            } else {
                load.prefill_tokens += num_tokens;
                load.prefill_context += context;
            }
        }
        load
    }

    fn terms(self) -> [f64; 6] {
        let Self { prefill_tokens, prefill_context, decode_sequences, decode_context, after_idle, .. } = self;
        [1.0, prefill_tokens, prefill_context, decode_sequences, decode_context, after_idle]
    }
}

/// Step time as a sum, in microseconds for each unit of a [`StepLoad`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostModel {
    /// Of every step: weights are read, threads are woken.
    pub step: f64,
    /// Of a prefill token.
    pub prefill_token: f64,
    /// Of a position that a prefill token attends to.
    pub prefill_context: f64,
    /// Of a sequence that decodes.
    pub decode_sequence: f64,
    /// Of a position that a decoding sequence attends to.
    pub decode_context: f64,
    /// Of a step that follows a pause: caches have gone to others, threads sleep.
    pub after_idle: f64,
    /// Of a KV block that is copied to host memory or back: its bytes over the bandwidth.
    pub swap_block: f64,
}

impl CostModel {
    /// Time of a step in seconds.
    pub fn step_seconds(&self, load: StepLoad) -> f64 {
        let sum: f64 = self.coefficients().iter().zip(load.terms()).map(|(cost, amount)| cost * amount).sum();
        (sum + self.swap_block * load.swapped_blocks) * 1e-6
    }

    /// What preempting costs by this model, for the scheduler's choice: computing again goes in steps of
    /// `max_num_batched_tokens`.
    pub fn preemption_costs(&self, max_num_batched_tokens: u32) -> PreemptionCosts {
        let tokens = f64::from(max_num_batched_tokens.max(1));
        let prefill = StepLoad { prefill_tokens: tokens, ..StepLoad::default() };
        PreemptionCosts {
            recompute_ns_per_token: (self.step_seconds(prefill) * 1e9 / tokens) as u64,
            swap_ns_per_block: (self.swap_block * 1e3) as u64,
        }
    }

    /// The model, without negative costs and without that of swapping, whose relative errors over measured steps (load,
    /// seconds) have the least sum of squares, once those steps are left out that took unusually long: something else
    /// ran beside them. Steps with prefill count as much together as those without, of which there are many more: the
    /// former are what the time to the first token comes from.
    pub fn fit(steps: &[(StepLoad, f64)]) -> Self {
        let mut kept: Vec<(StepLoad, f64)> =
            steps.iter().copied().filter(|(_, seconds)| *seconds > 0.0).collect();
        let mut model = Self::fit_all(&kept);
        for _ in 0..3 {
            let error = |&(load, seconds): &(StepLoad, f64)| seconds / model.step_seconds(load).max(1e-9);
            let mut errors: Vec<f64> = kept.iter().map(error).collect();
            errors.sort_by(f64::total_cmp);
            let Some(&median) = errors.get(errors.len() / 2) else { break };
            kept.retain(|step| error(step) < 1.8 * median);
            model = Self::fit_all(&kept);
        }
        model
    }

    fn fit_all(steps: &[(StepLoad, f64)]) -> Self {
        let num_prefills = steps.iter().filter(|(load, _)| load.prefill_tokens > 0.0).count() as f64;
        let num_decodes = steps.len() as f64 - num_prefills;
        let rows = steps.iter().map(|(load, seconds)| {
            let num_alike = if load.prefill_tokens > 0.0 { num_prefills } else { num_decodes };
            (1.0 / num_alike, load.terms().map(|term| term * 1e-6 / seconds))
        });
        let [step, prefill_token, prefill_context, decode_sequence, decode_context, after_idle] =
            fit::least_squares_to_one(rows);
        let swap_block = 0.0;
        Self { step, prefill_token, prefill_context, decode_sequence, decode_context, after_idle, swap_block }
    }

    pub(super) fn coefficients(&self) -> [f64; 6] {
        let Self {
            step, prefill_token, prefill_context, decode_sequence, decode_context, after_idle, ..
        } = *self;
        [step, prefill_token, prefill_context, decode_sequence, decode_context, after_idle]
    }
}
