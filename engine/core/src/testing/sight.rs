//! What the next token of a sequence sees of those before it, in every group of layers.

use std::collections::VecDeque;

use super::reply::Context;
use crate::kv::{KvGroup, KvGroups};

/// Grows by one entry for each position.
#[derive(Debug)]
pub(super) struct Sight(Vec<GroupSight>);

#[derive(Debug)]
enum GroupSight {
    Full(Context),
    /// The last entries, at most `size`.
    Window {
        size: usize,
        entries: VecDeque<u64>,
    },
}

impl Sight {
    /// Nothing seen yet.
    pub(super) fn new(groups: KvGroups) -> Self {
        let group = |group: &KvGroup| match *group {
            KvGroup::SlidingWindow { window } => {
                GroupSight::Window { size: window as usize, entries: VecDeque::new() }
            }
            KvGroup::Full | KvGroup::Latent | KvGroup::State => GroupSight::Full(Context::default()),
        };
        Self(groups.as_slice().iter().map(group).collect())
    }

    /// One more position of one group.
    pub(super) fn see(&mut self, group: usize, entry: u64) {
        match &mut self.0[group] {
            GroupSight::Full(context) => *context = context.with(entry),
            GroupSight::Window { size, entries } => {
                entries.push_back(entry);
                if entries.len() > *size {
                    entries.pop_front();
                }
            }
        }
    }

    /// One more position of all groups.
    pub(super) fn see_in_all(&mut self, entry: u64) {
        (0..self.0.len()).for_each(|group| self.see(group, entry));
    }

    /// What the latest position sees, itself included: from this, the next token is chosen.
    pub(super) fn context(&self) -> Context {
        self.join(0)
    }

    /// What the next position sees besides itself.
    pub(super) fn before_next(&self) -> Context {
        self.join(1)
    }

    /// All groups together, where windows leave out as many as `room` entries more.
    fn join(&self, room: usize) -> Context {
        let contexts = self.0.iter().map(|group| match group {
            GroupSight::Full(context) => *context,
            GroupSight::Window { size, entries } => {
                let num_out = (entries.len() + room).saturating_sub(*size);
                entries.iter().skip(num_out).fold(Context::default(), |context, &entry| context.with(entry))
            }
        });
        contexts.reduce(Context::and).unwrap_or_default()
    }
}
