//! What a schedule would feel like: the real scheduler, and a formula in the place of the model.
//!
//! Time is a number that steps move on; nothing here looks at a clock, so equal inputs give equal results.

mod cost;
mod fit;
mod percentiles;

use std::collections::HashMap;
use std::sync::Arc;

pub use cost::{CostModel, StepLoad};
pub use percentiles::Percentiles;

use crate::event::Event;
use crate::plan::{SequenceOutput, StepOutput, StepPlan};
use crate::runner::RunnerLimits;
use crate::sampling::SamplingParams;
use crate::scheduler::{NewSequence, Scheduler, SchedulerConfig, SchedulerStats, Update};
use crate::sequence::SequenceId;

/// Generated tokens: which ones does not matter, since nothing stops at them.
const TOKEN: u32 = 1;

/// A request that arrives by itself, whatever became of those before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// Time of arrival in seconds from the start; not before that of the request before it.
    pub seconds: f64,
    /// Prompt tokens.
    pub prompt: Arc<[u32]>,
    /// Tokens generated; at least 1.
    pub num_generated_tokens: u32,
}

/// What came of all requests. Times are in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// From arrival to first token, by request in the order of first tokens.
    pub ttft: Vec<f64>,
    /// Between consecutive tokens of a request, in the order of tokens.
    pub itl: Vec<f64>,
    /// From arrival to last token, by request in the order of ends.
    pub e2e: Vec<f64>,
    /// Requests that can never run: too long for the model's length or the pool.
    pub num_refused: u64,
    /// From the start to the last token.
    pub seconds: f64,
    /// The scheduler's figures at the end.
    pub stats: SchedulerStats,
}

/// Times of a request that has not ended.
struct Clocks {
    arrival: f64,
    last_token: Option<f64>,
}

struct Simulation {
    scheduler: Scheduler,
    cost: CostModel,
    now: f64,
    clocks: HashMap<SequenceId, Clocks>,
    outcome: Outcome,
    updates: Vec<Update>,
    num_arrived: u64,
    /// Whether nothing ran just before.
    idle: bool,
}

/// Runs all arrivals, in their order, to their end. `progress` hears how many have ended.
pub fn simulate(
    config: SchedulerConfig,
    limits: RunnerLimits,
    cost: CostModel,
    arrivals: impl IntoIterator<Item = Arrival>,
    mut progress: impl FnMut(u64),
) -> Outcome {
    let mut scheduler = Scheduler::new(config, limits);
    scheduler.set_preemption_costs(cost.preemption_costs(limits.max_num_batched_tokens));
    let mut simulation = Simulation {
        scheduler,
        cost,
        now: 0.0,
        clocks: HashMap::new(),
        outcome: Outcome::default(),
        updates: Vec::new(),
        num_arrived: 0,
        idle: true,
    };
    let mut arrivals = arrivals.into_iter().peekable();
    let (mut plan, mut output) = (StepPlan::default(), StepOutput::default());
    loop {
        while let Some(arrival) = arrivals.next_if(|next| next.seconds <= simulation.now) {
            simulation.arrive(arrival);
        }
        if simulation.scheduler.schedule(&mut plan) {
            simulation.step(&plan, &mut output);
        } else if let Some(next) = arrivals.peek() {
            simulation.now = next.seconds;
            simulation.idle = true;
        } else {
            break;
        }
        progress(simulation.outcome.e2e.len() as u64 + simulation.outcome.num_refused);
    }
    simulation.outcome.stats = simulation.scheduler.stats();
    simulation.outcome
}

impl Simulation {
    fn arrive(&mut self, arrival: Arrival) {
        let id = SequenceId(self.num_arrived);
        self.num_arrived += 1;
        let max_tokens = arrival.num_generated_tokens;
        let sampling = SamplingParams { max_tokens, ..SamplingParams::default() };
        match self.scheduler.add(NewSequence::new(id, arrival.prompt, Arc::new(sampling))) {
            Ok(()) => {
                self.clocks.insert(id, Clocks { arrival: arrival.seconds, last_token: None });
            }
            Err(_) => self.outcome.num_refused += 1,
        }
    }

    fn step(&mut self, plan: &StepPlan, output: &mut StepOutput) {
        let after_idle = if std::mem::take(&mut self.idle) { 1.0 } else { 0.0 };
        self.now += self.cost.step_seconds(StepLoad { after_idle, ..StepLoad::of(plan) });
        output.sequences.resize_with(plan.sequences.len(), SequenceOutput::default);
        for (planned, result) in plan.sequences.iter().zip(&mut output.sequences) {
            result.token_ids.clear();
            result.token_ids.extend(planned.samples.then_some(TOKEN));
        }
        self.scheduler.settle(plan, output, &mut self.updates);
        for Update { id, event } in self.updates.drain(..) {
            let Some(clocks) = self.clocks.get_mut(&id) else { continue };
            match event {
                Event::Token { .. } => match clocks.last_token.replace(self.now) {
                    None => self.outcome.ttft.push(self.now - clocks.arrival),
                    Some(before) => self.outcome.itl.push(self.now - before),
                },
                event if event.is_terminal() => {
                    self.outcome.e2e.push(self.now - clocks.arrival);
                    self.outcome.seconds = self.now;
                    self.clocks.remove(&id);
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
