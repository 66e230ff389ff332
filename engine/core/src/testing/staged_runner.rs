//! A runner of two stages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::FakeRunner;
use crate::plan::{StepOutput, StepPlan};
use crate::runner::{ModelRunner, RunnerLimits, StepError, Ticket};

/// Takes two steps at once, as a pipeline does: a step moves from the first stage to the second when the next one comes
/// or when it is waited for, and only there its tokens are computed.
#[derive(Debug)]
pub struct StagedRunner {
    runner: FakeRunner,
    first_stage: Option<StepPlan>,
    second_stage: VecDeque<Ticket>,
    num_overlaps: Arc<AtomicU64>,
}

impl StagedRunner {
    /// Two stages over a runner of two steps in flight, and how many steps so far came while another was under way.
    pub fn new(runner: FakeRunner) -> (Arc<AtomicU64>, Self) {
        assert_eq!(runner.limits().max_in_flight, 2, "one step in flight for each stage");
        let num_overlaps = Arc::new(AtomicU64::new(0));
        let (first_stage, second_stage) = (None, VecDeque::new());
        (Arc::clone(&num_overlaps), Self { runner, first_stage, second_stage, num_overlaps })
    }

    fn advance(&mut self) -> Result<(), StepError> {
        if let Some(plan) = self.first_stage.take() {
            self.second_stage.push_back(self.runner.submit(&plan)?);
        }
        Ok(())
    }
}

impl ModelRunner for StagedRunner {
    fn limits(&self) -> RunnerLimits {
        self.runner.limits()
    }

    fn submit(&mut self, plan: &StepPlan) -> Result<Ticket, StepError> {
        self.advance()?;
        self.num_overlaps.fetch_add(self.second_stage.len() as u64, Ordering::Relaxed);
        assert!(self.second_stage.len() < 2, "both stages are taken");
        self.first_stage = Some(plan.clone());
        Ok(Ticket(plan.step))
    }

    fn collect(&mut self, ticket: Ticket, output: &mut StepOutput) -> Result<(), StepError> {
        if self.second_stage.is_empty() {
            self.advance()?;
        }
        let oldest = self.second_stage.pop_front();
        assert_eq!(oldest.as_ref(), Some(&ticket), "steps are collected in order");
        self.runner.collect(ticket, output)
    }
}
