//! One step's plan.

use super::{Decision, Scheduler, WaitReason};
use crate::plan::{Admission, Row, SequencePlan, StepPlan};
use crate::sequence::Sequence;

impl Scheduler {
    /// Fills `plan` with the next step; `false` when there is nothing to run.
    ///
    /// The step counts as submitted: [`Scheduler::settle`] or [`Scheduler::fail`] must follow, in order. Sequences
    /// of a step that is in flight are left out of the next one.
    pub fn schedule(&mut self, plan: &mut StepPlan) -> bool {
        plan.clear();
        self.next_blocks.clear();
        self.decisions.clear();
        self.running.retain(|row| self.rows[row.0 as usize].is_some());
        let mut budget = self.config.max_num_batched_tokens;
        // Where those that run lack blocks, there are none for a newcomer.
        match self.plan_running(plan, &mut budget) {
            Some(promised) => self.plan_waiting(plan, &mut budget, promised),
            None => self.next_waits(WaitReason::RunningLackBlocks),
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
    /// known but did not fit this step's budget; `None` when blocks ran out.
    fn plan_running(&mut self, plan: &mut StepPlan, budget: &mut u32) -> Option<u32> {
        let mut promised = Some(0);
        let mut index = 0;
        while let Some(&row) = self.running.get(index) {
            let sequence = self.sequence(row);
            if !sequence.in_flight() && *budget > 0 {
                let num_tokens = self.share(sequence, *budget);
                let num_missing = self.kv.num_missing(row, sequence.num_computed_tokens + num_tokens);
                if num_missing > self.kv.num_available() {
                    promised = None;
                    if !self.make_room(num_missing, index) {
                        break;
                    }
                }
                self.plan_sequence(row, num_tokens, 0, plan);
                *budget -= num_tokens;
            } else {
                let because = if sequence.in_flight() { WaitReason::InFlight } else { WaitReason::NoBudget };
                self.decisions.push(Decision::Waits { id: sequence.id, because });
            }
            self.note_next_block(row);
            let num_lacking = self.kv.num_missing(row, self.sequence(row).num_tokens());
            promised = promised.map(|sum| sum + num_lacking);
            index += 1;
        }
        promised
    }

    /// Admits sequences in order of arrival, while rows, budget and blocks for their whole known length last.
    ///
    /// A sequence whose next block is just being computed by another waits for it, and so do those behind it: it
    /// would otherwise take more of the budget to compute the same.
    fn plan_waiting(&mut self, plan: &mut StepPlan, budget: &mut u32, mut promised: u32) {
        while let Some(mut first) = self.waiting.first_entry() {
            if *budget == 0 || self.free_rows.is_empty() {
                let because = if *budget == 0 { WaitReason::NoBudget } else { WaitReason::NoRow };
                return self.next_waits(because);
            }
            let sequence = first.get_mut();
            let block_size = self.limits.block_size;
            if self.config.enable_prefix_caching {
                let num_cacheable = sequence.num_cacheable_blocks(block_size);
                sequence.hash_blocks(num_cacheable, block_size, self.root_hash);
            }
            let hashes = sequence.cacheable_hashes(block_size);
            let (mut num_found, mut num_shared) = (0, 0);
            for block in self.kv.find_prefix(hashes) {
                num_found += 1;
                num_shared += u32::from(!self.kv.is_idle(block));
            }
            if let Some(&leader) = hashes.get(num_found).and_then(|hash| self.next_blocks.get(hash)) {
                return self.next_waits(WaitReason::FollowsPrefix { leader });
            }
            // Blocks that others use already cost nothing.
            let num_needed = sequence.num_tokens().div_ceil(block_size) - num_shared;
            // One block more for each that runs: a newcomer must not cost them theirs right away.
            let headroom = self.running.len() as u32;
            let (num_needed, num_available) = (num_needed + promised + headroom, self.kv.num_available());
            if num_needed > num_available {
                return self.next_waits(WaitReason::NoBlocks { num_needed, num_available });
            }
            let sequence = first.remove();
            let (row, num_adopted) = self.admit(sequence, plan);
            let num_tokens = self.share(self.sequence(row), *budget);
            self.plan_sequence(row, num_tokens, num_adopted, plan);
            *budget -= num_tokens;
            self.note_next_block(row);
            promised += self.kv.num_missing(row, self.sequence(row).num_tokens());
        }
    }

    /// Notes why the first of those that wait goes on waiting, and those behind it with it.
    fn next_waits(&mut self, because: WaitReason) {
        let first = self.waiting.first_key_value();
        self.decisions.extend(first.map(|(&id, _)| Decision::Waits { id, because }));
    }

    fn note_next_block(&mut self, row: Row) {
        let sequence = self.sequence(row);
        let (id, block) = (sequence.id, sequence.next_prompt_block());
        self.next_blocks.extend(block.map(|hash| (hash, id)));
    }

    /// Puts a sequence into a free row, with what the prefix cache has of it. Returns the row and how many blocks
    /// those are.
    fn admit(&mut self, mut sequence: Sequence, plan: &mut StepPlan) -> (Row, u32) {
        let row = self.free_rows.pop().expect("the caller checks that a row is free");
        self.counters.waiting_tokens -= sequence.prompt.len();
        plan.admitted.push(Admission {
            row,
            sampling: sequence.admission_sampling(),
            num_prompt_tokens: sequence.num_prompt_tokens(),
            known_tokens: sequence.admission_tokens(),
        });
        let block_size = self.limits.block_size;
        self.kv.reserve(row, sequence.num_reserved_tokens());
        let num_adopted =
            self.kv.adopt_prefix(row, sequence.cacheable_hashes(block_size), &mut plan.new_blocks);
        sequence.num_computed_tokens = num_adopted * block_size;
        sequence.num_published_blocks = num_adopted;
        if sequence.num_cached_tokens.is_none() {
            sequence.num_cached_tokens = Some(sequence.num_computed_tokens);
            self.counters.prefix_cache_hits += u64::from(sequence.num_computed_tokens);
            let is_looked_up = self.config.enable_prefix_caching;
            self.counters.prefix_cache_queries += if is_looked_up { sequence.prompt.len() as u64 } else { 0 };
        }
        self.decisions.push(Decision::Admitted {
            id: sequence.id,
            row,
            num_cached_tokens: sequence.num_computed_tokens,
        });
        self.row_of.insert(sequence.id, row);
        let place = self.running.partition_point(|&other| self.sequence(other).id < sequence.id);
        self.running.insert(place, row);
        self.rows[row.0 as usize] = Some(sequence);
        (row, num_adopted)
    }

    /// How many of a sequence's pending tokens go into this step.
    fn share(&self, sequence: &Sequence, budget: u32) -> u32 {
        let limit = self.config.long_prefill_token_threshold.unwrap_or(u32::MAX).max(1);
        sequence.num_pending_tokens().min(limit).min(budget)
    }

    /// Adds a sequence's share to the plan. `num_adopted` blocks of its are in the plan already.
    fn plan_sequence(&mut self, row: Row, num_tokens: u32, num_adopted: u32, plan: &mut StepPlan) {
        let sequence = self.rows[row.0 as usize].as_mut().expect("only occupied rows are planned");
        let position = sequence.num_computed_tokens;
        let num_missing = self.kv.num_missing(row, position + num_tokens);
        self.kv.grow(row, num_missing, &mut plan.new_blocks);
        let num_new_blocks = num_adopted + num_missing;
        sequence.copy_tokens(position, num_tokens, &mut plan.token_ids);
        sequence.num_in_flight_tokens = num_tokens;
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
    /// itself. `false` when that one had to go too, or when what is left is in flight and must be waited for; no later
    /// one can run then either.
    fn make_room(&mut self, num_blocks: u32, index: usize) -> bool {
        let beneficiary = self.sequence(self.running[index]).id;
        while self.kv.num_available() < num_blocks {
            let Some(victim) =
                (index..self.running.len()).rev().find(|&i| !self.sequence(self.running[i]).in_flight())
            else {
                let because =
                    WaitReason::NoBlocks { num_needed: num_blocks, num_available: self.kv.num_available() };
                self.decisions.push(Decision::Waits { id: beneficiary, because });
                return false;
            };
            let row = self.running.remove(victim);
            self.decisions.push(Decision::Preempted { id: self.sequence(row).id, beneficiary });
            self.preempt(row);
            if victim == index {
                return false;
            }
        }
        true
    }

    /// Sends a sequence back to wait. Its tokens stay; its KV is computed again once it is admitted anew.
    fn preempt(&mut self, row: Row) {
        let sequence = self.vacate(row);
        self.counters.preemptions += 1;
        self.wait(sequence);
    }
}
