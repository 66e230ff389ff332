//! One step's plan.

use super::Scheduler;
use crate::plan::{Admission, Row, SequencePlan, StepPlan};
use crate::sequence::Sequence;

impl Scheduler {
    /// Fills `plan` with the next step; `false` when there is nothing to run.
    ///
    /// The step counts as submitted: [`Scheduler::settle`] or [`Scheduler::fail`] must follow, in order. Sequences
    /// of a step that is in flight are left out of the next one.
    pub fn schedule(&mut self, plan: &mut StepPlan) -> bool {
        plan.clear();
        self.running.retain(|row| self.rows[row.0 as usize].is_some());
        let mut budget = self.config.max_num_batched_tokens;
        let preemptions = self.counters.preemptions;
        let promised = self.plan_running(plan, &mut budget);
        // Blocks just taken from one sequence are not for a newcomer.
        if self.counters.preemptions == preemptions {
            self.plan_waiting(plan, &mut budget, promised);
        }
        if plan.sequences.is_empty() {
            return false;
        }
        self.counters.steps += 1;
        plan.step = self.counters.steps;
        plan.released.append(&mut self.released);
        true
    }

    /// Plans for the sequences that run, oldest first. Returns how many blocks they still lack for tokens that are
    /// known but did not fit this step's budget.
    fn plan_running(&mut self, plan: &mut StepPlan, budget: &mut u32) -> u32 {
        let mut promised = 0;
        let mut index = 0;
        while let Some(&row) = self.running.get(index) {
            index += 1;
            let sequence = self.sequence(row);
            if !sequence.in_flight && *budget > 0 {
                let num_tokens = self.share(sequence, *budget);
                let num_missing = self.kv.num_missing(row, sequence.num_computed_tokens + num_tokens);
                if !self.make_room(num_missing, index - 1) {
                    continue;
                }
                self.plan_sequence(row, num_tokens, plan);
                *budget -= num_tokens;
            }
            promised += self.kv.num_missing(row, self.sequence(row).num_tokens());
        }
        promised
    }

    /// Admits sequences in order of arrival, while rows, budget and blocks for their whole known length last.
    fn plan_waiting(&mut self, plan: &mut StepPlan, budget: &mut u32, mut promised: u32) {
        while *budget > 0 && !self.free_rows.is_empty() {
            let Some(first) = self.waiting.first_entry() else { break };
            let num_needed = first.get().num_tokens().div_ceil(self.limits.block_size);
            // One block more for each that runs: a newcomer must not cost them theirs right away.
            let headroom = self.running.len() as u32;
            if num_needed + promised + headroom > self.kv.num_available() {
                break;
            }
            let sequence = first.remove();
            let row = self.admit(sequence, plan);
            let num_tokens = self.share(self.sequence(row), *budget);
            self.plan_sequence(row, num_tokens, plan);
            *budget -= num_tokens;
            promised += self.kv.num_missing(row, self.sequence(row).num_tokens());
        }
    }

    fn admit(&mut self, sequence: Sequence, plan: &mut StepPlan) -> Row {
        let row = self.free_rows.pop().expect("the caller checks that a row is free");
        self.counters.waiting_tokens -= sequence.prompt.len();
        plan.admitted.push(Admission {
            row,
            sampling: sequence.admission_sampling(),
            num_prompt_tokens: sequence.num_prompt_tokens(),
        });
        self.row_of.insert(sequence.id, row);
        let place = self.running.partition_point(|&other| self.sequence(other).id < sequence.id);
        self.running.insert(place, row);
        self.rows[row.0 as usize] = Some(sequence);
        row
    }

    /// How many of a sequence's pending tokens go into this step.
    fn share(&self, sequence: &Sequence, budget: u32) -> u32 {
        let limit = self.config.long_prefill_token_threshold.unwrap_or(u32::MAX).max(1);
        sequence.num_pending_tokens().min(limit).min(budget)
    }

    fn plan_sequence(&mut self, row: Row, num_tokens: u32, plan: &mut StepPlan) {
        let sequence = self.rows[row.0 as usize].as_mut().expect("only occupied rows are planned");
        let position = sequence.num_computed_tokens;
        let num_new_blocks = self.kv.num_missing(row, position + num_tokens);
        self.kv.grow(row, num_new_blocks, &mut plan.new_blocks);
        sequence.copy_tokens(position, num_tokens, &mut plan.token_ids);
        sequence.in_flight = true;
        let samples = num_tokens == sequence.num_pending_tokens();
        let next_prompt_token = sequence.next_prompt_token(position + num_tokens);
        plan.sequences.push(SequencePlan {
            row,
            position,
            num_tokens,
            num_new_blocks,
            samples,
            next_prompt_token,
        });
    }

    /// Frees blocks until `num_blocks` are available, by preempting the latest arrivals down to `self.running[index]`
    /// itself. `false` when that one had to go too, or when what is left is in flight and must be waited for.
    fn make_room(&mut self, num_blocks: u32, index: usize) -> bool {
        while self.kv.num_available() < num_blocks {
            let Some(victim) =
                (index..self.running.len()).rev().find(|&i| !self.sequence(self.running[i]).in_flight)
            else {
                return false;
            };
            let row = self.running.remove(victim);
            self.preempt(row);
            if victim == index {
                return false;
            }
        }
        true
    }

    /// Sends a sequence back to wait. Its KV is computed again later; its tokens stay.
    fn preempt(&mut self, row: Row) {
        let mut sequence = self.vacate(row);
        sequence.num_computed_tokens = 0;
        self.counters.preemptions += 1;
        self.wait(sequence);
    }
}
