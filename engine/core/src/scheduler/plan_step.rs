//! One step's plan.

use super::{Decision, Scheduler, WaitReason};
use crate::plan::{Row, SequencePlan, StepPlan};
use crate::sequence::Sequence;

/// A plan that is being made.
pub(super) struct Draft<'a> {
    pub(super) plan: &'a mut StepPlan,
    /// Tokens that are left to give.
    pub(super) budget: u32,
    /// Sequences that get a part of their pending tokens and not all.
    pub(super) num_partial: u32,
    /// Blocks that sequences so far lack for tokens that are known and not in this step.
    pub(super) promised: u32,
    /// Why nobody else is admitted.
    pub(super) closed: Option<WaitReason>,
    /// Whether a newcomer gets what it lacks once the steps in flight are settled: none behind it runs until then.
    pub(super) drains: bool,
}

impl Scheduler {
    /// Fills `plan` with the next step; `false` when there is nothing to run.
    ///
    /// The step counts as submitted: [`Scheduler::settle`] or [`Scheduler::fail`] must follow, in order. Steps that are
    /// in flight go on; see the module's page for who is part of the next one, too.
    pub fn schedule(&mut self, plan: &mut StepPlan) -> bool {
        plan.clear();
        self.next_blocks.clear();
        self.copied.clear();
        self.decisions.clear();
        let runs = |sequence: &Sequence| !sequence.held && !sequence.ended;
        self.running.retain(|row| self.rows[row.0 as usize].as_ref().is_some_and(runs));
        self.waiting.age(self.counters.steps);
        self.host.begin_plan();
        let budget = self.config.max_num_batched_tokens;
        self.fill(&mut Draft { plan, budget, num_partial: 0, promised: 0, closed: None, drains: false });
        if plan.sequences.is_empty() {
            return false;
        }
        self.counters.steps += 1;
        plan.step = self.counters.steps;
        plan.released.append(&mut self.released);
        plan.swapped_out.append(&mut self.swapped_out);
        true
    }

    /// Goes through all sequences in their order.
    fn fill(&mut self, draft: &mut Draft) {
        let mut index = 0;
        loop {
            let next_class = self.running.get(index).map(|&row| self.sequence(row).rank().class);
            let newcomer = self.waiting.first().filter(|_| draft.closed.is_none());
            if newcomer.is_some_and(|first| next_class.is_none_or(|class| first.priority < class)) {
                match self.admit_first(index, draft) {
                    Ok(()) => index += 1,
                    Err(because) => draft.closed = Some(because),
                }
            } else if draft.drains || next_class.is_none() || !self.plan_running(index, draft) {
                break;
            } else {
                index += 1;
            }
        }
        if let (Some(because), Some(first)) = (draft.closed, self.waiting.first()) {
            self.decisions.push(Decision::Waits { id: first.id, because });
        }
    }

    /// Plans for `self.running[index]`. `false` when it lacks blocks that cannot be had, which goes for all behind it.
    fn plan_running(&mut self, index: usize, draft: &mut Draft) -> bool {
        let row = self.running[index];
        let sequence = self.sequence(row);
        match self.share(sequence.num_pending_tokens(), draft) {
            _ if sequence.in_flight() && !sequence.may_run_ahead(self.feeds_sampled_tokens) => {
                self.waits(row, WaitReason::InFlight);
            }
            Err(because) => self.waits(row, because),
            Ok(num_tokens) => {
                let num_missing = self.kv.num_missing(row, sequence.num_planned_tokens() + num_tokens);
                if num_missing > self.kv.num_available() {
                    // Where those that run lack blocks, there are none for a newcomer.
                    draft.closed = Some(WaitReason::RunningLackBlocks);
                    if !self.make_room(num_missing, index) {
                        return false;
                    }
                }
                self.plan_sequence(row, num_tokens, self.kv.table_len(row), draft);
            }
        }
        self.note_planned(row, draft);
        true
    }

    fn waits(&mut self, row: Row, because: WaitReason) {
        let id = self.sequence(row).id;
        self.decisions.push(Decision::Waits { id, because });
    }

    /// How many of so many pending tokens go into this step: at least one.
    pub(super) fn share(&self, num_pending: u32, draft: &Draft) -> Result<u32, WaitReason> {
        if draft.budget == 0 {
            return Err(WaitReason::NoBudget);
        }
        let limit = self.config.long_prefill_token_threshold.unwrap_or(u32::MAX).max(1);
        let num_tokens = num_pending.min(limit).min(draft.budget);
        if num_tokens < num_pending && draft.num_partial >= self.config.max_num_partial_prefills.max(1) {
            return Err(WaitReason::TooManyPartialPrefills);
        }
        Ok(num_tokens)
    }

    /// Adds a sequence's share to the plan. The runner knows the first `num_known` entries of its tables.
    pub(super) fn plan_sequence(&mut self, row: Row, num_tokens: u32, num_known: u32, draft: &mut Draft) {
        let sequence = self.rows[row.0 as usize].as_mut().expect("only occupied rows are planned");
        let plan = &mut *draft.plan;
        let (position, samples) =
            (sequence.num_planned_tokens(), num_tokens == sequence.num_pending_tokens());
        let num_new_blocks = self.kv.grow(row, position + num_tokens, num_known, &mut plan.new_blocks);
        let is_known = position < sequence.num_tokens();
        let num_placeholders = if is_known { 0 } else { num_tokens };
        if is_known {
            sequence.copy_tokens(position, num_tokens, &mut plan.token_ids);
        } else {
            plan.token_ids.extend(std::iter::repeat_n(0, num_tokens as usize));
        }
        sequence.num_in_flight_tokens += num_tokens;
        sequence.num_in_flight_steps += 1;
        let next_prompt_token = sequence.next_prompt_token(position + num_tokens);
        plan.sequences.push(SequencePlan {
            row,
            position,
            num_tokens,
            num_placeholders,
            num_new_blocks,
            samples,
            next_prompt_token,
        });
        draft.budget -= num_tokens;
        draft.num_partial += u32::from(!samples);
    }

    /// Notes what those that wait must leave to a sequence that runs.
    pub(super) fn note_planned(&mut self, row: Row, draft: &mut Draft) {
        if self.waiting.is_empty() {
            return;
        }
        let sequence = self.sequence(row);
        let (id, block) = (sequence.id, sequence.next_prompt_block());
        let block = block.filter(|_| sequence.kv_epoch == self.kv_epoch);
        self.next_blocks.extend(block.map(|hash| (hash, id)));
        draft.promised += self.num_promised(row);
    }

    /// Blocks that a sequence in a row lacks for all its known tokens, and which no newcomer is to take.
    pub(super) fn num_promised(&self, row: Row) -> u32 {
        let known = self.sequence(row).num_tokens();
        if self.config.reserve_full_isl { self.kv.num_lacking(row, known) } else { 0 }
    }
}
