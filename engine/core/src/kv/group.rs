//! Groups of layers that keep the same positions.

use serde::{Deserialize, Serialize};

/// What a group of layers keeps of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum KvGroup {
    /// Keys and values of all positions.
    Full,
    /// Those of the last `window` positions, a token's own included.
    SlidingWindow {
        /// At least 1.
        window: u32,
    },
    /// A compressed vector for each position.
    Latent,
    /// One state for the whole sequence.
    State,
}

/// Groups of layers that a cache can have.
const MAX_GROUPS: usize = 8;

/// The groups of a model's layers, in the order of their block tables. A block holds as many layers in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<KvGroup>", into = "Vec<KvGroup>")]
pub struct KvGroups {
    groups: [KvGroup; MAX_GROUPS],
    len: usize,
}

/// Groups that this cache cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KvGroupsError {
    /// None, or too many.
    #[error("{0} groups of layers: a KV cache has 1 to {MAX_GROUPS}; put more layers into a group")]
    Number(usize),
    /// A token that does not even see itself.
    #[error("an attention window of 0 positions: a token sees at least itself")]
    Window,
    /// A kind without an implementation.
    #[error(
        "layers that keep {0:?} are not implemented; use a model whose layers attend fully or in a window"
    )]
    Kind(KvGroup),
}

impl KvGroups {
    /// All layers in one group of full attention.
    pub const FULL: Self = Self { groups: [KvGroup::Full; MAX_GROUPS], len: 1 };

    /// # Errors
    /// There are too many, or one of a kind that is not implemented.
    pub fn new(groups: &[KvGroup]) -> Result<Self, KvGroupsError> {
        if groups.is_empty() || groups.len() > MAX_GROUPS {
            return Err(KvGroupsError::Number(groups.len()));
        }
        for &group in groups {
            match group {
                KvGroup::SlidingWindow { window: 0 } => return Err(KvGroupsError::Window),
                KvGroup::Latent | KvGroup::State => return Err(KvGroupsError::Kind(group)),
                KvGroup::Full | KvGroup::SlidingWindow { .. } => {}
            }
        }
        let mut all = Self { len: groups.len(), ..Self::FULL };
        all.groups[..groups.len()].copy_from_slice(groups);
        Ok(all)
    }

    /// In order.
    pub fn as_slice(&self) -> &[KvGroup] {
        &self.groups[..self.len]
    }

    /// How many blocks a sequence of `num_tokens` tokens holds at most at once, in all groups, if no more than
    /// `max_step_tokens` of its tokens are computed at a time.
    pub fn max_blocks(&self, num_tokens: u32, max_step_tokens: u32, block_size: u32) -> u32 {
        let all = num_tokens.div_ceil(block_size);
        let each = self.as_slice().iter().map(|group| match *group {
            KvGroup::SlidingWindow { window } => {
                // So many positions in a row, wherever they start in a block.
                let span = (window - 1).saturating_add(max_step_tokens.max(1));
                all.min((span - 1).div_ceil(block_size) + 1)
            }
            KvGroup::Full | KvGroup::Latent | KvGroup::State => all,
        });
        each.fold(0, u32::saturating_add)
    }
}

impl Default for KvGroups {
    fn default() -> Self {
        Self::FULL
    }
}

impl TryFrom<Vec<KvGroup>> for KvGroups {
    type Error = KvGroupsError;

    fn try_from(groups: Vec<KvGroup>) -> Result<Self, KvGroupsError> {
        Self::new(&groups)
    }
}

impl From<KvGroups> for Vec<KvGroup> {
    fn from(groups: KvGroups) -> Self {
        groups.as_slice().to_vec()
    }
}

impl KvGroup {
    /// The first position that the token at `position` sees.
    pub fn first_seen(self, position: u32) -> u32 {
        match self {
            Self::SlidingWindow { window } => position.saturating_add(1).saturating_sub(window),
            Self::Full | Self::Latent | Self::State => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: KvGroup = KvGroup::SlidingWindow { window: 5 };

    #[test]
    fn a_token_sees_itself_and_what_its_window_leaves_before_it() {
        assert_eq!([0, 4, 5, 9].map(|position| WINDOW.first_seen(position)), [0, 0, 1, 5]);
        assert_eq!(KvGroup::SlidingWindow { window: 1 }.first_seen(7), 7);
        assert_eq!(KvGroup::Full.first_seen(9), 0);
    }

    #[test]
    fn a_window_bounds_the_blocks_of_a_long_sequence() {
        let groups = KvGroups::new(&[KvGroup::Full, WINDOW]).unwrap();
        // Four positions before a chunk of six touch four blocks of four at most.
        assert_eq!(groups.max_blocks(400, 6, 4), 100 + 4);
        assert_eq!(groups.max_blocks(8, 6, 4), 2 + 2);
        assert_eq!(groups.max_blocks(u32::MAX, u32::MAX, 1), u32::MAX);
    }

    #[test]
    fn groups_without_an_implementation_are_refused() {
        for kind in [KvGroup::Latent, KvGroup::State] {
            let error = KvGroups::new(&[KvGroup::Full, kind]).unwrap_err();
            assert_eq!(error, KvGroupsError::Kind(kind));
            assert!(error.to_string().contains("not implemented"), "{error}");
        }
        assert_eq!(KvGroups::new(&[]), Err(KvGroupsError::Number(0)));
        assert_eq!(KvGroups::new(&[WINDOW; 9]), Err(KvGroupsError::Number(9)));
        assert_eq!(KvGroups::new(&[KvGroup::SlidingWindow { window: 0 }]), Err(KvGroupsError::Window));
    }
}
