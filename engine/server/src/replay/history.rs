//! One sequence's life, step by step.

use std::fmt;

use regatta_core::replay::{RecordedSequence, ReplayedStep};
use regatta_core::scheduler::{Decision, WaitReason};
use regatta_core::sequence::SequenceId;
use serde::Serialize;

use super::end::End;
use super::report::reason_text;

/// What happened to a sequence over consecutive steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Entry {
    pub(super) first_step: u64,
    pub(super) last_step: u64,
    #[serde(flatten)]
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub(super) enum What {
    Arrived {
        num_prompt_tokens: usize,
        max_tokens: u32,
        /// As in the request; lower goes first.
        priority: i32,
    },
    Waited {
        because: WaitReason,
    },
    /// Another one waited first.
    StoodBehind {
        other: SequenceId,
    },
    Admitted {
        num_cached_tokens: u32,
    },
    Forked {
        parent: SequenceId,
        num_tokens: u32,
    },
    Prefilled {
        num_tokens: u32,
    },
    Decoded {
        num_tokens: u32,
    },
    Preempted {
        beneficiary: SequenceId,
    },
    /// It has a row and none of the step's tokens.
    Paused,
    Ended {
        by: End,
    },
}

#[derive(Debug, Serialize)]
pub(super) struct History {
    pub(super) id: SequenceId,
    pub(super) entries: Vec<Entry>,
    #[serde(skip)]
    lives: bool,
}

impl History {
    pub(super) fn new(id: SequenceId) -> Self {
        Self { id, entries: Vec::new(), lives: false }
    }

    pub(super) fn added(&mut self, added: &RecordedSequence, steps: u64) {
        if added.id == self.id {
            self.lives = true;
            let RecordedSequence { prompt, max_tokens, priority, .. } = added;
            let (num_prompt_tokens, max_tokens, priority) = (prompt.len(), *max_tokens, *priority);
            self.push(steps, What::Arrived { num_prompt_tokens, max_tokens, priority });
        }
    }

    pub(super) fn ended(&mut self, id: SequenceId, by: End, steps: u64) {
        if id == self.id {
            self.lives = false;
            self.push(steps, What::Ended { by });
        }
    }

    pub(super) fn planned(&mut self, planned: &ReplayedStep) {
        if !self.lives {
            return;
        }
        let step = planned.step;
        let mut waits = false;
        for decision in &planned.decisions {
            match *decision {
                Decision::Admitted { id, num_cached_tokens, .. } if id == self.id => {
                    self.push(step, What::Admitted { num_cached_tokens });
                }
                Decision::Forked { id, parent, num_tokens } if id == self.id => {
                    self.push(step, What::Forked { parent, num_tokens });
                }
                Decision::Preempted { id, beneficiary, .. } if id == self.id => {
                    waits = true;
                    self.push(step, What::Preempted { beneficiary });
                }
                Decision::Waits { id, because } if id == self.id => {
                    waits = true;
                    self.push(step, What::Waited { because });
                }
                _ => {}
            }
        }
        if let Some(share) = planned.ran.iter().find(|share| share.id == self.id) {
            let num_tokens = share.num_tokens;
            let is_prefill = share.position + 1 < share.num_prompt_tokens || num_tokens > 1;
            self.push(
                step,
                if is_prefill { What::Prefilled { num_tokens } } else { What::Decoded { num_tokens } },
            );
        } else if !waits {
            self.push(step, self.idle(planned));
        }
    }

    /// What an unmentioned sequence does in a step.
    fn idle(&self, planned: &ReplayedStep) -> What {
        let first = planned.decisions.iter().find_map(|decision| match *decision {
            Decision::Waits { id, .. } if planned.waiting.contains(&id) => Some(id),
            _ => None,
        });
        match first {
            Some(other) if planned.waiting.contains(&self.id) => What::StoodBehind { other },
            _ => What::Paused,
        }
    }

    /// Adds an entry, or lets the last one go on.
    fn push(&mut self, step: u64, what: What) {
        if let Some(last) = self.entries.last_mut() {
            let grown = match (&last.what, &what) {
                (What::Prefilled { num_tokens: a }, What::Prefilled { num_tokens: b }) => {
                    Some(What::Prefilled { num_tokens: a + b })
                }
                (What::Decoded { num_tokens: a }, What::Decoded { num_tokens: b }) => {
                    Some(What::Decoded { num_tokens: a + b })
                }
                (
                    What::Waited { because: WaitReason::NoBlocks { .. } },
                    What::Waited { because: WaitReason::NoBlocks { .. } },
                ) => Some(what.clone()),
                (a, b) if a == b => Some(what.clone()),
                _ => None,
            };
            if let Some(grown) = grown {
                last.what = grown;
                last.last_step = step;
                return;
            }
        }
        self.entries.push(Entry { first_step: step, last_step: step, what });
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arrived { num_prompt_tokens, max_tokens, priority } => {
                write!(
                    f,
                    "arrived with {num_prompt_tokens} prompt tokens, for at most {max_tokens} new ones"
                )?;
                if *priority == 0 { Ok(()) } else { write!(f, ", with priority {priority}") }
            }
            Self::Waited { because } => write!(f, "waited: {}", reason_text(*because)),
            Self::StoodBehind { other } => write!(f, "stood behind sequence {}, which waited", other.0),
            Self::Admitted { num_cached_tokens: 0 } => write!(f, "got a row"),
            Self::Admitted { num_cached_tokens } => {
                write!(f, "got a row, with {num_cached_tokens} tokens from the prefix cache")
            }
            Self::Forked { parent, num_tokens } => {
                write!(f, "took {num_tokens} tokens over from sequence {}", parent.0)
            }
            Self::Prefilled { num_tokens } => write!(f, "prefilled {num_tokens} tokens"),
            Self::Decoded { num_tokens } => write!(f, "decoded {num_tokens} tokens"),
            Self::Preempted { beneficiary } => {
                write!(f, "lost its blocks to sequence {} and waits again", beneficiary.0)
            }
            Self::Paused => write!(f, "kept its row and took no part"),
            Self::Ended { by } => write!(f, "was ended by {}", by.text()),
        }
    }
}
