//! From waiting to a row.

use super::fork::Fork;
use super::plan_step::Draft;
use super::{Decision, Scheduler, WaitReason};
use crate::kv::PrefixHit;
use crate::plan::{Admission, Row};
use crate::sequence::{Sequence, Swapped};

/// What a sequence takes in its first step.
struct Entry {
    num_tokens: u32,
    /// Blocks that must be available, at once or soon.
    num_blocks: u32,
    /// What is computed of it.
    start: Start,
}

/// What a sequence need not compute.
enum Start {
    /// What the prefix cache has of it.
    Prefix(PrefixHit),
    /// What its parent has, which is more.
    Fork(Fork),
    /// What host memory has.
    Swapped,
}

impl Scheduler {
    /// Admits the first of those that wait. It may have the rows and blocks of those from `self.running[index]` on: their
    /// priority is higher than its own.
    pub(super) fn admit_first(&mut self, index: usize, draft: &mut Draft) -> Result<(), WaitReason> {
        self.hash_first();
        let Entry { num_tokens, start, .. } = self.make_way(index, draft)?;
        let row = self.admit(&start, draft);
        self.plan_sequence(row, num_tokens, 0, draft);
        if let Start::Fork(Fork { parent, num_tokens }) = start {
            self.kv.copy_partial(parent, row, num_tokens, &mut draft.plan.block_copies);
            self.copied.push(parent);
        }
        self.note_planned(row, draft);
        Ok(())
    }

    fn hash_first(&mut self) {
        let block_size = self.limits.block_size;
        if !self.config.enable_prefix_caching {
            return;
        }
        let inherited = self.inherited_hashes();
        if let Some(first) = self.waiting.first_mut() {
            first.block_hashes.extend(inherited);
            first.hash_blocks(first.num_cacheable_blocks(block_size), block_size);
        }
    }

    /// Preempts held sequences, then those from `self.running[index]` on, last first, until the first of those that wait
    /// has a row and blocks; nobody when that is not enough, or not yet.
    fn make_way(&mut self, index: usize, draft: &mut Draft) -> Result<Entry, WaitReason> {
        loop {
            let entry = self.first_entry(draft)?;
            let tail = &self.running[index..];
            let num_available = self.kv.num_available();
            // One block more in each group for each that runs: a newcomer must not cost them theirs right away.
            let num_groups = self.kv.num_groups();
            let num_kept = entry.num_blocks + draft.promised + index as u32 * num_groups;
            let num_promised: u32 = tail.iter().map(|&row| self.num_promised(row) + num_groups).sum();
            let num_needed = num_kept + num_promised;
            if !self.free_rows.is_empty() && num_needed <= num_available {
                return Ok(entry);
            }
            let because = if self.free_rows.is_empty() {
                WaitReason::NoRow
            } else {
                WaitReason::NoBlocks { num_needed, num_available }
            };
            let [mut num_idle, mut num_in_flight] = [0, 0];
            for &row in tail.iter().chain(&self.held) {
                let num = if self.may_give_way(row) { &mut num_idle } else { &mut num_in_flight };
                *num += self.kv.num_held(row);
            }
            if num_kept > num_available + num_idle {
                draft.drains = num_kept <= num_available + num_idle + num_in_flight;
                return Err(because);
            }
            let Some(beneficiary) = self.waiting.first().map(|first| first.id) else { return Err(because) };
            if self.preempt_held(beneficiary) {
                continue;
            }
            let Some(victim) = self.last_idle(index) else {
                draft.drains = index < self.running.len();
                return Err(because);
            };
            self.preempt(victim, beneficiary);
        }
    }

    /// What the first of those that wait would take.
    ///
    /// A sequence whose next block is just being computed by another waits for it, and so do those behind it: it
    /// would otherwise take more of the budget to compute the same.
    fn first_entry(&self, draft: &Draft) -> Result<Entry, WaitReason> {
        let first = self.waiting.first().expect("the caller checks that someone waits");
        if let Some(swapped) = &first.swapped {
            // What this plan itself writes may be read in it, too.
            if (self.last_settled + 1..=self.counters.steps).contains(&swapped.step) {
                return Err(WaitReason::SwapsOut);
            }
            return self.entry(first, first.num_computed_tokens, 0, Start::Swapped, draft);
        }
        let block_size = self.limits.block_size;
        let hashes = first.cacheable_hashes(block_size);
        let hit = self.kv.find_prefix(hashes);
        let num_cached_tokens = hit.num_blocks * block_size;
        if let Some(fork) = self.fork_of(first)?.filter(|fork| fork.num_tokens > num_cached_tokens) {
            let num_shared = self.kv.num_shared(fork.num_tokens);
            return self.entry(first, fork.num_tokens, num_shared, Start::Fork(fork), draft);
        }
        if let Some(&leader) = hashes.get(hit.num_blocks as usize).and_then(|hash| self.next_blocks.get(hash))
        {
            return Err(WaitReason::FollowsPrefix { leader });
        }
        self.entry(first, num_cached_tokens, hit.num_shared, Start::Prefix(hit), draft)
    }

    /// What a sequence takes that need not compute its first `num_known` tokens.
    fn entry(
        &self,
        first: &Sequence,
        num_known: u32,
        num_shared: u32,
        start: Start,
        draft: &Draft,
    ) -> Result<Entry, WaitReason> {
        let num_tokens = self.share(first.num_tokens() - num_known, draft)?;
        let num_reserved = match self.config.reserve_full_isl {
            true => first.num_tokens(),
            false => num_known + num_tokens,
        };
        // Blocks that others use already cost nothing.
        Ok(Entry { num_tokens, num_blocks: self.kv.max_blocks(num_reserved) - num_shared, start })
    }

    /// Puts the first of those that wait into a free row, with what is computed of it.
    fn admit(&mut self, start: &Start, draft: &mut Draft) -> Row {
        let mut sequence =
            self.waiting.pop(self.counters.steps).expect("the caller checks that someone waits");
        let row = self.free_rows.pop().expect("the caller checks that a row is free");
        draft.plan.admitted.push(Admission {
            row,
            sampling: sequence.admission_sampling(),
            num_prompt_tokens: sequence.num_prompt_tokens(),
            known_tokens: sequence.admission_tokens(),
        });
        self.kv.reserve(row, sequence.num_reserved_tokens());
        let block_size = self.limits.block_size;
        match *start {
            Start::Prefix(hit) => {
                self.kv.adopt_prefix(row, &sequence.block_hashes[..hit.num_blocks as usize]);
                sequence.num_computed_tokens = hit.num_blocks * block_size;
            }
            Start::Fork(Fork { parent, num_tokens }) => {
                self.kv.share(parent, row, num_tokens);
                sequence.num_computed_tokens = num_tokens;
            }
            Start::Swapped => {
                let Swapped { tables, .. } = sequence.swapped.take().expect("its KV is in host memory");
                self.kv.swap_in(row, &tables, &mut self.host, &mut draft.plan.swapped_in);
            }
        }
        sequence.kv_epoch = match start {
            Start::Prefix(_) => self.kv_epoch,
            Start::Fork(fork) => self.sequence(fork.parent).kv_epoch,
            Start::Swapped => sequence.kv_epoch,
        };
        sequence.num_published_blocks = match start {
            // They are others than those that were findable.
            Start::Swapped => 0,
            _ => sequence.num_computed_tokens / block_size,
        };
        if sequence.num_cached_tokens.is_none() {
            sequence.num_cached_tokens = Some(sequence.num_computed_tokens);
            self.counters.prefix_cache_hits += u64::from(sequence.num_computed_tokens);
            let is_looked_up = self.config.enable_prefix_caching;
            self.counters.prefix_cache_queries += if is_looked_up { sequence.prompt.len() as u64 } else { 0 };
        }
        let (id, num_tokens) = (sequence.id, sequence.num_computed_tokens);
        let num_cached_tokens = if matches!(start, Start::Fork(_)) { 0 } else { num_tokens };
        self.decisions.push(Decision::Admitted { id, row, num_cached_tokens });
        if let Start::Fork(Fork { parent, .. }) = *start {
            let parent = self.sequence(parent).id;
            self.decisions.push(Decision::Forked { id, parent, num_tokens });
        }
        self.row_of.insert(sequence.id, row);
        self.rows[row.0 as usize] = Some(sequence);
        self.run(row);
        row
    }
}
