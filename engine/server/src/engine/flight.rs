//! Steps under way: submitted, and not yet collected.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use regatta_core::plan::{StepOutput, StepPlan};
use regatta_core::runner::{ModelRunner, StepError, Ticket};

/// Hands plans to a runner and takes their results back, in order. A panic in the runner is an error of its step.
pub(super) struct Flights {
    runner: Box<dyn ModelRunner>,
    max_in_flight: usize,
    /// Oldest first. What could not be submitted keeps its place: the steps before it are settled first.
    under_way: VecDeque<Flight>,
    /// Memory of former plans.
    spare: Vec<StepPlan>,
    /// When the last step ended.
    last_end: Instant,
}

struct Flight {
    plan: StepPlan,
    ticket: Result<Ticket, StepError>,
    start: Instant,
}

/// A step that is over.
pub(super) struct Landed {
    pub(super) plan: StepPlan,
    pub(super) result: Result<(), StepError>,
    /// How long it took, from its start or from the end of the step before it.
    pub(super) time: Duration,
}

impl Flights {
    pub(super) fn new(runner: Box<dyn ModelRunner>) -> Self {
        let max_in_flight = runner.limits().max_in_flight.max(1) as usize;
        let (under_way, spare) = (VecDeque::new(), Vec::new());
        Self { runner, max_in_flight, under_way, spare, last_end: Instant::now() }
    }

    pub(super) fn runner(&mut self) -> &mut dyn ModelRunner {
        &mut *self.runner
    }

    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether the next step has to wait: one more would be too many, or would go on where one was refused.
    pub(super) fn is_full(&self) -> bool {
        self.under_way.len() >= self.max_in_flight
            || self.under_way.back().is_some_and(|last| last.ticket.is_err())
    }

    /// An empty plan.
    pub(super) fn take_plan(&mut self) -> StepPlan {
        self.spare.pop().unwrap_or_default()
    }

    /// Gives a plan's memory back.
    pub(super) fn return_plan(&mut self, plan: StepPlan) {
        self.spare.push(plan);
    }

    pub(super) fn submit(&mut self, plan: StepPlan) {
        let start = Instant::now();
        let runner = &mut self.runner;
        let ticket = catch(plan.step, || runner.submit(&plan));
        self.under_way.push_back(Flight { plan, ticket, start });
    }

    /// Waits for the oldest step and writes its result into `output`.
    pub(super) fn land(&mut self, output: &mut StepOutput) -> Option<Landed> {
        let Flight { plan, ticket, start } = self.under_way.pop_front()?;
        let runner = &mut self.runner;
        let result = ticket.and_then(|ticket| catch(plan.step, || runner.collect(ticket, output)));
        let end = Instant::now();
        let time = end.duration_since(start.max(self.last_end));
        self.last_end = end;
        Some(Landed { plan, result, time })
    }
}

fn catch<T>(step: u64, run: impl FnOnce() -> Result<T, StepError>) -> Result<T, StepError> {
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|panic| Err(StepError { step, reason: format!("panic: {}", panic_text(&*panic)) }))
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("of unknown cause")
}
