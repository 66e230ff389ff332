//! A sequence: a prompt and what has been generated after it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::event::{Event, FinishReason};
use crate::kv::{BlockContent, BlockHash, SwappedTables};
use crate::plan::{KnownTokens, PositionLogprobs};
use crate::sampling::SamplingParams;
use crate::scheduler::NewSequence;

/// Names a sequence for its whole life. Never used twice; smaller ids arrived earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SequenceId(pub u64);

/// A place in the order of service: smaller goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// The priority, or [`AGED`].
    pub(crate) class: i64,
    /// Within a class: order of arrival.
    pub(crate) id: SequenceId,
}

/// Those that have waited long enough: before every priority.
const AGED: i64 = i64::MIN;

/// Generated tokens for which memory is set aside at the start, so that decode rarely allocates.
const RESERVED_GENERATED_TOKENS: usize = 4096;

/// KV in host memory.
#[derive(Debug)]
pub(crate) struct Swapped {
    pub(crate) tables: SwappedTables,
    /// The step that writes it.
    pub(crate) step: u64,
}

/// Bookkeeping of one sequence. Its KV is computed for positions below `num_computed_tokens`; steps in flight compute the
/// `num_in_flight_tokens` positions after them.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) id: SequenceId,
    /// The sequence whose KV it takes over as far as they have the same tokens.
    pub(crate) forks: Option<SequenceId>,
    pub(crate) sampling: Arc<SamplingParams>,
    pub(crate) prompt: Arc<[u32]>,
    pub(crate) generated: Vec<u32>,
    pub(crate) num_computed_tokens: u32,
    /// Prompt tokens found in the prefix cache at the first admission; `None` before it.
    pub(crate) num_cached_tokens: Option<u32>,
    /// Parent of its first block: the model's, with its own salt.
    root_hash: BlockHash,
    cache_salt: Option<Arc<str>>,
    /// Hashes of the leading full blocks of known tokens, as far as they have been needed.
    pub(crate) block_hashes: Vec<BlockHash>,
    /// [`Scheduler::kv_epoch`](crate::scheduler::Scheduler) of the oldest of its KV.
    pub(crate) kv_epoch: u64,
    /// Leading blocks of the table whose content is findable.
    pub(crate) num_published_blocks: u32,
    /// Tokens that steps in flight compute; what they were at its end, once it has ended.
    pub(crate) num_in_flight_tokens: u32,
    /// Steps in flight that it is part of.
    pub(crate) num_in_flight_steps: u32,
    /// Whether it pauses after each token.
    pub(crate) holds: bool,
    /// Whether it does so now.
    pub(crate) held: bool,
    /// To end when the first of its steps in flight is settled.
    pub(crate) cancelled: bool,
    /// Its end has been told; it keeps row and blocks until the last of its steps in flight is settled.
    pub(crate) ended: bool,
    /// Where its KV is, while it waits and has not lost it.
    pub(crate) swapped: Option<Swapped>,
    /// The step at which it began to wait, while it waits.
    pub(crate) waits_since: u64,
    /// Steps that it has waited before that, in all.
    pub(crate) num_waited_steps: u64,
    /// Lower goes first.
    pub(crate) priority: i64,
    aged: bool,
    max_tokens: u32,
    /// Collected until the whole prompt is covered; `None` once reported, or when nobody asked.
    prompt_logprobs: Option<Vec<PositionLogprobs>>,
}

impl Sequence {
    /// A sequence whose first block follows `root`.
    pub(crate) fn new(new: NewSequence, max_tokens: u32, root: BlockHash) -> Self {
        let NewSequence { id, prompt, sampling, priority, forks, holds, cache_salt } = new;
        Self {
            id,
            forks,
            prompt_logprobs: sampling.prompt_logprobs.map(|_| Vec::new()),
            sampling,
            prompt,
            generated: Vec::new(),
            num_computed_tokens: 0,
            // A fork looks nothing up: what it takes over was just computed.
            num_cached_tokens: forks.map(|_| 0),
            root_hash: cache_salt.as_ref().map_or(root, |salt| root.salted(salt)),
            cache_salt,
            block_hashes: Vec::new(),
            kv_epoch: 0,
            num_published_blocks: 0,
            num_in_flight_tokens: 0,
            num_in_flight_steps: 0,
            holds,
            held: false,
            cancelled: false,
            ended: false,
            swapped: None,
            waits_since: 0,
            num_waited_steps: 0,
            priority: i64::from(priority),
            aged: false,
            max_tokens,
        }
    }

    pub(crate) fn rank(&self) -> Rank {
        Rank { class: if self.aged { AGED } else { self.priority }, id: self.id }
    }

    /// Puts it before all that have not waited as long, from now on.
    pub(crate) fn age(&mut self) {
        self.aged = true;
    }

    pub(crate) fn has_aged(&self) -> bool {
        self.aged
    }

    /// Known tokens: prompt and generated.
    pub(crate) fn num_tokens(&self) -> u32 {
        self.num_prompt_tokens() + self.generated.len() as u32
    }

    pub(crate) fn num_prompt_tokens(&self) -> u32 {
        self.prompt.len() as u32
    }

    /// Leading known tokens that are the same in both.
    pub(crate) fn num_common_tokens(&self, other: &Self) -> u32 {
        let same_prompt = Arc::ptr_eq(&self.prompt, &other.prompt);
        let start = if same_prompt { self.num_prompt_tokens() } else { 0 };
        let end = self.num_tokens().min(other.num_tokens());
        (start..end).find(|&position| self.token(position) != other.token(position)).unwrap_or(end)
    }

    /// Whether tokens of the prompt need not be computed: log-probabilities are wanted of none.
    pub(crate) fn may_skip_prompt(&self) -> bool {
        self.prompt_logprobs.is_none()
    }

    /// Whether a step that is not settled computes tokens of this sequence.
    pub(crate) fn in_flight(&self) -> bool {
        self.num_in_flight_steps > 0
    }

    /// Tokens whose KV is computed, or will be by a step in flight: the position of the next one to plan.
    pub(crate) fn num_planned_tokens(&self) -> u32 {
        self.num_computed_tokens + self.num_in_flight_tokens
    }

    /// Tokens that are to be planned: the known ones, or the one that a step in flight samples.
    pub(crate) fn num_pending_tokens(&self) -> u32 {
        self.num_tokens().saturating_sub(self.num_planned_tokens()).max(1)
    }

    /// Whether it can be part of the next step although it is in flight: over known tokens, or over the token that the
    /// last of its steps samples, if `feeds_sampled_tokens` and unless that token surely is its last one or somebody
    /// else chooses in its place.
    pub(crate) fn may_run_ahead(&self, feeds_sampled_tokens: bool) -> bool {
        let num_planned = self.num_planned_tokens();
        let is_known = num_planned < self.num_tokens();
        let has_room = num_planned + 1 < self.num_prompt_tokens() + self.max_tokens;
        !self.cancelled && (is_known || feeds_sampled_tokens && has_room && !self.holds)
    }

    /// Tokens for which memory is set aside: the prompt and what is likely to be generated.
    pub(crate) fn num_reserved_tokens(&self) -> usize {
        self.prompt.len() + (self.max_tokens as usize).min(RESERVED_GENERATED_TOKENS)
    }

    fn token(&self, position: u32) -> u32 {
        let position = position as usize;
        self.prompt.get(position).copied().unwrap_or_else(|| self.generated[position - self.prompt.len()])
    }

    /// Appends the tokens at positions `start..start + len` to `out`.
    pub(crate) fn copy_tokens(&self, start: u32, len: u32, out: &mut Vec<u32>) {
        let (start, end) = (start as usize, (start + len) as usize);
        let split = self.prompt.len();
        if start < split {
            out.extend_from_slice(&self.prompt[start..end.min(split)]);
        }
        if end > split {
            out.extend_from_slice(&self.generated[start.max(split) - split..end - split]);
        }
    }

    /// Appends a new token; `Some` when it is the last.
    pub(crate) fn push(&mut self, token_id: u32) -> Option<FinishReason> {
        if self.generated.is_empty() {
            self.generated.reserve_exact(self.num_reserved_tokens() - self.prompt.len());
        }
        self.generated.push(token_id);
        if self.sampling.stop_token_ids.contains(&token_id) {
            Some(FinishReason::Stop { token_id })
        } else if self.generated.len() >= self.max_tokens as usize {
            Some(FinishReason::Length)
        } else {
            None
        }
    }

    /// Goes on with this token. How long it gets is not its own business.
    pub(crate) fn resume(&mut self, token_id: u32) {
        self.held = false;
        self.push(token_id);
    }

    /// Extends `block_hashes` to at least `num_blocks`, all of which must be full of known tokens.
    pub(crate) fn hash_blocks(&mut self, num_blocks: u32, block_size: u32) {
        if self.block_hashes.is_empty() {
            self.block_hashes
                .reserve_exact((self.num_reserved_tokens() / block_size as usize).max(num_blocks as usize));
        }
        for index in self.block_hashes.len() as u32..num_blocks {
            let parent = self.block_hashes.last().copied().unwrap_or(self.root_hash);
            let tokens = (index * block_size..(index + 1) * block_size).map(|position| self.token(position));
            let hash = parent.child(tokens);
            self.block_hashes.push(hash);
        }
    }

    /// What its `index`-th block is, whose hash is known.
    pub(crate) fn block_content(&self, index: u32, block_size: u32) -> BlockContent {
        let mut token_ids = Vec::with_capacity(block_size as usize);
        self.copy_tokens(index * block_size, block_size, &mut token_ids);
        let parent = index.checked_sub(1).map(|before| self.block_hashes[before as usize]);
        BlockContent { parent, token_ids, cache_salt: self.cache_salt.clone() }
    }

    /// How many leading blocks may come from the prefix cache: full ones, leaving a token to compute; none while
    /// log-probabilities of the prompt must be computed.
    pub(crate) fn num_cacheable_blocks(&self, block_size: u32) -> u32 {
        if self.may_skip_prompt() { (self.num_tokens() - 1) / block_size } else { 0 }
    }

    /// The hashes of those blocks, as far as they have been computed.
    pub(crate) fn cacheable_hashes(&self, block_size: u32) -> &[BlockHash] {
        let num_blocks = self.num_cacheable_blocks(block_size) as usize;
        &self.block_hashes[..num_blocks.min(self.block_hashes.len())]
    }

    /// The block that this sequence makes findable next, while it is known: during prefill.
    pub(crate) fn next_prompt_block(&self) -> Option<BlockHash> {
        self.block_hashes.get(self.num_published_blocks as usize).copied()
    }

    /// The terminal event.
    pub(crate) fn finished(&self, reason: FinishReason) -> Event {
        Event::Finished {
            reason,
            num_prompt_tokens: self.num_prompt_tokens(),
            num_generated_tokens: self.generated.len() as u32,
            num_cached_tokens: self.num_cached_tokens.unwrap_or(0),
        }
    }

    /// What the runner is to know: after a preemption, prompt log-probabilities that were reported are not asked
    /// for again.
    pub(crate) fn admission_sampling(&self) -> Arc<SamplingParams> {
        if self.sampling.prompt_logprobs.is_none() || self.prompt_logprobs.is_some() {
            return Arc::clone(&self.sampling);
        }
        Arc::new(SamplingParams { prompt_logprobs: None, ..(*self.sampling).clone() })
    }

    /// The tokens known so far, where the runner must have them to sample.
    pub(crate) fn admission_tokens(&self) -> Option<KnownTokens> {
        self.sampling
            .looks_back()
            .then(|| KnownTokens { prompt: Arc::clone(&self.prompt), generated: self.generated.clone() })
    }

    /// The prompt token at `position`, where its log-probability is still to be collected.
    pub(crate) fn next_prompt_token(&self, position: u32) -> Option<u32> {
        self.prompt_logprobs.as_ref().and_then(|_| self.prompt.get(position as usize).copied())
    }

    /// Takes those of another sequence of the same prompt as reported; `false` when they already are, or nobody asked.
    pub(crate) fn skip_prompt_logprobs(&mut self) -> bool {
        self.prompt_logprobs.take().is_some()
    }

    /// Adds the log-probabilities of the prompt tokens that follow `position`; the whole list once it is complete.
    /// Those computed a second time, after a preemption, are dropped.
    pub(crate) fn collect_prompt_logprobs(
        &mut self,
        position: u32,
        computed: &mut Vec<PositionLogprobs>,
    ) -> Option<Vec<PositionLogprobs>> {
        let collected = self.prompt_logprobs.as_mut()?;
        let num_known = (collected.len() as u32).saturating_sub(position) as usize;
        collected.extend(computed.drain(..).skip(num_known));
        // The first token has none: nothing comes before it.
        if collected.len() + 1 < self.prompt.len() { None } else { self.prompt_logprobs.take() }
    }
}
