//! Sequences that wait for a row, in the order in which they are to get one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::ensure;
use crate::sequence::{Rank, Sequence, SequenceId};

/// The queue. With ageing, who has waited long enough in all goes before everyone who has not.
#[derive(Debug)]
pub(super) struct Waiting {
    by_rank: BTreeMap<Rank, Sequence>,
    rank_of: HashMap<SequenceId, Rank>,
    /// Steps after which a sequence that waits has aged; absent: none ever does.
    ageing_steps: Option<u64>,
    /// Step at which each sequence that has not aged does so.
    ages_at: BTreeSet<(u64, SequenceId)>,
    num_prompt_tokens: usize,
}

impl Waiting {
    pub(super) fn new(ageing_steps: Option<u64>) -> Self {
        Self {
            by_rank: BTreeMap::new(),
            rank_of: HashMap::new(),
            ageing_steps,
            ages_at: BTreeSet::new(),
            num_prompt_tokens: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_rank.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_rank.is_empty()
    }

    /// Prompt tokens of all.
    pub(super) fn num_prompt_tokens(&self) -> usize {
        self.num_prompt_tokens
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = SequenceId> + '_ {
        self.rank_of.keys().copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Sequence> {
        self.by_rank.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Sequence> {
        self.by_rank.values_mut()
    }

    /// Who is next.
    pub(super) fn first(&self) -> Option<&Sequence> {
        self.by_rank.first_key_value().map(|(_, sequence)| sequence)
    }

    pub(super) fn first_mut(&mut self) -> Option<&mut Sequence> {
        self.by_rank.first_entry().map(std::collections::btree_map::OccupiedEntry::into_mut)
    }

    /// Lets `sequence` wait from `step` on.
    pub(super) fn push(&mut self, mut sequence: Sequence, step: u64) {
        sequence.waits_since = step;
        if let Some(ages_at) = self.ages_at(&sequence) {
            self.ages_at.insert((ages_at, sequence.id));
        }
        self.num_prompt_tokens += sequence.prompt.len();
        self.rank_of.insert(sequence.id, sequence.rank());
        self.by_rank.insert(sequence.rank(), sequence);
    }

    /// Takes out who is next, at `step`.
    pub(super) fn pop(&mut self, step: u64) -> Option<Sequence> {
        let id = self.first()?.id;
        self.remove(id, step)
    }

    /// Takes a sequence out, wherever it stands.
    pub(super) fn remove(&mut self, id: SequenceId, step: u64) -> Option<Sequence> {
        let rank = self.rank_of.remove(&id)?;
        let mut sequence = self.by_rank.remove(&rank)?;
        if let Some(ages_at) = self.ages_at(&sequence) {
            self.ages_at.remove(&(ages_at, id));
        }
        self.num_prompt_tokens -= sequence.prompt.len();
        sequence.num_waited_steps += step - sequence.waits_since;
        Some(sequence)
    }

    /// Moves those that have waited long enough at `step` to the front.
    pub(super) fn age(&mut self, step: u64) {
        while let Some(&(_, id)) = self.ages_at.first().filter(|(ages_at, _)| *ages_at <= step) {
            let Some(mut sequence) = self.remove(id, step) else { break };
            sequence.age();
            self.push(sequence, step);
        }
    }

    /// The step at which a sequence that waits has waited long enough.
    fn ages_at(&self, sequence: &Sequence) -> Option<u64> {
        let left = self.ageing_steps?.saturating_sub(sequence.num_waited_steps);
        (!sequence.has_aged()).then_some(sequence.waits_since + left)
    }

    pub(super) fn audit(&self) -> Result<(), String> {
        let num_prompt_tokens: usize = self.by_rank.values().map(|sequence| sequence.prompt.len()).sum();
        ensure(num_prompt_tokens == self.num_prompt_tokens, || {
            "waiting prompt tokens are miscounted".to_owned()
        })?;
        ensure(self.rank_of.len() == self.by_rank.len(), || {
            "those that wait and their index differ in number".to_owned()
        })?;
        for (rank, sequence) in &self.by_rank {
            let indexed = self.rank_of.get(&sequence.id) == Some(rank) && sequence.rank() == *rank;
            ensure(indexed, || format!("sequence {} waits at a place that is not its own", sequence.id.0))?;
        }
        let num_young = self.by_rank.values().filter(|sequence| self.ages_at(sequence).is_some()).count();
        ensure(num_young == self.ages_at.len(), || "a sequence waits and does not age".to_owned())
    }
}
