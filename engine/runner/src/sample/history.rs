//! The tokens that a sequence's sampling looks back at.

use std::collections::HashMap;

use regatta_core::plan::KnownTokens;

/// Tokens of one sequence, counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// Every token of the prompt and of what was generated, with how often it was generated.
    counts: HashMap<u32, u32>,
    generated: Vec<u32>,
}

impl History {
    /// Adds a token that was generated.
    pub(crate) fn push(&mut self, token_id: u32) {
        *self.counts.entry(token_id).or_default() += 1;
        self.generated.push(token_id);
    }

    /// Every token so far, in no order, with how often it was generated: 0 for those of the prompt alone.
    pub(super) fn counts(&self) -> impl Iterator<Item = (u32, u32)> {
        self.counts.iter().map(|(&token_id, &count)| (token_id, count))
    }

    /// What was generated, in order.
    pub(super) fn generated(&self) -> &[u32] {
        &self.generated
    }
}

impl From<&KnownTokens> for History {
    fn from(known: &KnownTokens) -> Self {
        let mut history = Self {
            counts: known.prompt.iter().map(|&token_id| (token_id, 0)).collect(),
            generated: Vec::new(),
        };
        known.generated.iter().for_each(|&token_id| history.push(token_id));
        history
    }
}
