//! What came of a step.

use std::sync::Arc;

use super::{Scheduler, Update};
use crate::event::{Event, FinishReason};
use crate::plan::{Row, SequenceOutput, SequencePlan, StepOutput, StepPlan};

/// Why a sequence ends for which nothing was chosen.
const NO_TOKEN: &str =
    "no token is left to choose: allowed_token_ids, bad_words and min_tokens exclude them all; allow more";

impl Scheduler {
    /// Takes in the result of the oldest step in flight; `updates` gets what happened, in the plan's order.
    /// Log-probabilities are moved out of `output`. What it holds for sequences that have ended before is dropped.
    pub fn settle(&mut self, plan: &StepPlan, output: &mut StepOutput, updates: &mut Vec<Update>) {
        self.last_settled = plan.step;
        let (num_planned, num_answered) = (plan.sequences.len(), output.sequences.len());
        if num_planned != num_answered {
            let reason = format!("the runner answered for {num_answered} of {num_planned} sequences");
            return self.fail(plan, &reason, updates);
        }
        for (planned, result) in plan.sequences.iter().zip(&mut output.sequences) {
            self.settle_sequence(planned, result, updates);
        }
    }

    /// Ends the sequences of the oldest step in flight, which could not be run. Later steps that they are part of still
    /// have to be settled.
    pub fn fail(&mut self, plan: &StepPlan, reason: &str, updates: &mut Vec<Update>) {
        self.last_settled = plan.step;
        self.lose_swapped(plan.step);
        // The runner may not have come as far as these; releasing an empty row does nothing.
        self.released.extend(plan.released.iter().filter(|row| self.rows[row.0 as usize].is_none()));
        for planned in &plan.sequences {
            if self.land(planned.row) {
                self.end(planned.row, Event::Failed { reason: reason.to_owned() }, updates);
            }
        }
    }

    /// One of the steps in flight of a row's sequence is over. `false` when the sequence has ended before; with the last
    /// of its steps it leaves the row.
    fn land(&mut self, row: Row) -> bool {
        let sequence = self.sequence_mut(row);
        sequence.num_in_flight_steps -= 1;
        if sequence.ended && !sequence.in_flight() {
            self.num_ended -= 1;
            self.vacate(row);
            return false;
        }
        !sequence.ended
    }

    fn settle_sequence(
        &mut self,
        planned: &SequencePlan,
        result: &mut SequenceOutput,
        updates: &mut Vec<Update>,
    ) {
        let row = planned.row;
        if !self.land(row) {
            return;
        }
        let sequence = self.sequence_mut(row);
        let id = sequence.id;
        if sequence.cancelled {
            return self.finish(row, FinishReason::Abort, updates);
        }
        sequence.num_in_flight_tokens -= planned.num_tokens;
        sequence.num_computed_tokens += planned.num_tokens;
        let num_computed_tokens = sequence.num_computed_tokens;
        self.publish_full_blocks(row);
        self.kv.drop_unseen(row, num_computed_tokens);
        let sequence = self.sequence_mut(row);
        if let Some(logprobs) =
            sequence.collect_prompt_logprobs(planned.position, &mut result.prompt_logprobs)
        {
            let prompt = Arc::clone(&sequence.prompt);
            self.report_to_forks(id, &prompt, &logprobs, updates);
            updates.push(Update { id, event: Event::PromptLogprobs(logprobs) });
        }
        if !planned.samples {
            return;
        }
        let sequence = self.sequence_mut(row);
        if result.token_ids.is_empty() {
            return self.end(row, Event::Failed { reason: NO_TOKEN.to_owned() }, updates);
        }
        // The prompt of a fork that holds is what its parent was told and generated.
        let first = sequence.generated.is_empty() && !(sequence.holds && sequence.forks.is_some());
        if first {
            let num_cached_tokens = sequence.num_cached_tokens.unwrap_or(0);
            updates.push(Update { id, event: Event::PromptComputed { num_cached_tokens } });
        }
        let num_prompt_tokens = u64::from(sequence.num_prompt_tokens());
        let mut logprobs = result.logprobs.drain(..);
        let mut finish = None;
        let mut num_new = 0;
        for &token_id in &result.token_ids {
            updates.push(Update { id, event: Event::Token { token_id, logprobs: logprobs.next() } });
            num_new += 1;
            if sequence.holds {
                break;
            }
            finish = sequence.push(token_id);
            if finish.is_some() {
                break;
            }
        }
        let holds = sequence.holds;
        self.counters.generation_tokens += num_new;
        self.counters.prompt_tokens += if first { num_prompt_tokens } else { 0 };
        if holds {
            self.hold(row);
        } else if let Some(reason) = finish {
            self.finish(row, reason, updates);
        }
    }

    /// Lets later sequences find the blocks of `row` that this step completed.
    fn publish_full_blocks(&mut self, row: Row) {
        if !self.config.enable_prefix_caching {
            return;
        }
        let block_size = self.limits.block_size;
        let sequence = self.rows[row.0 as usize].as_mut().expect("only occupied rows are settled");
        let num_full = sequence.num_computed_tokens / block_size;
        if num_full > sequence.num_published_blocks && sequence.kv_epoch == self.kv_epoch {
            sequence.hash_blocks(num_full, block_size);
            let blocks = sequence.num_published_blocks..num_full;
            let describe = |index| sequence.block_content(index, block_size);
            self.kv.publish(row, blocks, &sequence.block_hashes, describe);
            sequence.num_published_blocks = num_full;
        }
    }
}
