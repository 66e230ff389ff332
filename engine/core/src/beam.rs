//! Beam search as a pure function of the likeliest next tokens of each beam.
//!
//! The algorithm is vLLM's: in each round every beam offers its `2 * width` likeliest tokens. A stop token completes a
//! hypothesis; of all others the `width` with the highest cumulative log-probability are the beams of the next round.
//! After the last round the beams themselves are hypotheses, and the `width` best are the result. A hypothesis is
//! scored by `cumulative log-probability / length ^ length_penalty`, where the length counts the prompt and not the stop
//! token (Wu et al., 2016, in the form of Hugging Face's beam search).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::event::FinishReason;
use crate::plan::{PositionLogprobs, TokenLogprob};

/// What is searched for.
#[derive(Clone, Debug, PartialEq)]
pub struct BeamParams {
    /// Beams, and hypotheses in the result; at least 1.
    pub width: u32,
    /// Most tokens of a hypothesis; at least 1.
    pub max_tokens: u32,
    /// Above 0 longer hypotheses score better, below 0 shorter ones.
    pub length_penalty: f32,
    /// When to stop before `max_tokens`.
    pub early_stopping: EarlyStopping,
    /// Tokens that complete a hypothesis.
    pub stop_token_ids: Vec<u32>,
    /// Length of the prompt.
    pub num_prompt_tokens: u32,
    /// Alternatives to keep for each token of a hypothesis.
    pub num_top: u32,
}

/// When a search with `width` complete hypotheses stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EarlyStopping {
    /// When no beam can become better than the worst of them: the result is that of searching to the end.
    #[default]
    Never,
    /// When no beam would be better if it ended here.
    Heuristic,
    /// At once.
    Always,
}

/// What comes of a round.
#[derive(Clone, Debug, PartialEq)]
pub enum Round {
    /// The next round's beams: each continues one of this round's.
    Continue(Vec<Extension>),
    /// The result, best first: `width` hypotheses, or fewer where the vocabulary has no more.
    Done(Vec<Hypothesis>),
}

/// A beam of the next round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Index of the beam that it continues.
    pub parent: usize,
    /// With this token.
    pub token_id: u32,
}

/// A continuation of the prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Hypothesis {
    /// Its tokens, a stop token included.
    pub token_ids: Vec<u32>,
    /// For each of them, with the likeliest alternatives.
    pub logprobs: Vec<PositionLogprobs>,
    /// Sum of its tokens' log-probabilities.
    pub cumulative_logprob: f64,
    /// What it is ranked by.
    pub score: f64,
    /// How it ended.
    pub reason: FinishReason,
}

/// A search under way.
#[derive(Debug)]
pub struct BeamSearch {
    params: BeamParams,
    beams: Vec<Beam>,
    /// The best complete hypotheses, best first; at most `width`.
    complete: Vec<Hypothesis>,
}

#[derive(Clone, Debug, Default)]
struct Beam {
    cumulative_logprob: f64,
    num_tokens: u32,
    last: Option<Arc<Link>>,
}

/// A token and what came before it, which beams of one origin share.
#[derive(Debug)]
struct Link {
    logprobs: PositionLogprobs,
    before: Option<Arc<Link>>,
}

impl Drop for Link {
    /// One link after the other: the chain may be longer than the stack is deep.
    fn drop(&mut self) {
        let mut next = self.before.take();
        while let Some(mut link) = next.and_then(Arc::into_inner) {
            next = link.before.take();
        }
    }
}

/// A token that may follow a beam.
struct Candidate {
    parent: usize,
    rank: usize,
    cumulative_logprob: f64,
}

impl BeamSearch {
    /// A search whose first round has one beam: the prompt.
    pub fn new(params: BeamParams) -> Self {
        Self { params, beams: vec![Beam::default()], complete: Vec::new() }
    }

    /// How many likely tokens each beam must offer.
    pub fn num_candidates(&self) -> u32 {
        self.params.width.saturating_mul(2)
    }

    /// Beams of the round under way.
    pub fn num_beams(&self) -> usize {
        self.beams.len()
    }

    /// Ends a round. `likeliest` holds the likeliest next tokens of each beam, best first.
    pub fn advance(&mut self, likeliest: &[&[TokenLogprob]]) -> Round {
        let num_candidates = self.num_candidates() as usize;
        let mut candidates = Vec::new();
        for (parent, (beam, tokens)) in self.beams.iter().zip(likeliest).enumerate() {
            for (rank, token) in tokens.iter().enumerate().take(num_candidates) {
                let cumulative_logprob = beam.cumulative_logprob + f64::from(token.logprob);
                candidates.push(Candidate { parent, rank, cumulative_logprob });
            }
        }
        // Stable: of equals the earlier beam's, and its likelier token.
        candidates.sort_by(|a, b| b.cumulative_logprob.total_cmp(&a.cumulative_logprob));
        let width = self.params.width as usize;
        let (mut beams, mut extensions) = (Vec::with_capacity(width), Vec::with_capacity(width));
        for Candidate { parent, rank, cumulative_logprob } in candidates {
            let token_id = likeliest[parent][rank].token_id;
            let num_top = likeliest[parent].len().min(self.params.num_top as usize);
            let extended = || {
                let (token, top) = (likeliest[parent][rank], &likeliest[parent][..num_top]);
                self.beams[parent].extended(token, top, cumulative_logprob)
            };
            if self.params.stop_token_ids.contains(&token_id) {
                self.completed(&extended(), FinishReason::Stop { token_id });
            } else if beams.len() < width {
                beams.push(extended());
                extensions.push(Extension { parent, token_id });
            }
        }
        self.beams = beams;
        if self.is_done() {
            return Round::Done(self.finish());
        }
        Round::Continue(extensions)
    }

    /// The hypotheses so far, the beams among them.
    fn finish(&mut self) -> Vec<Hypothesis> {
        for beam in std::mem::take(&mut self.beams) {
            self.completed(&beam, FinishReason::Length);
        }
        std::mem::take(&mut self.complete)
    }

    fn completed(&mut self, beam: &Beam, reason: FinishReason) {
        let num_stop_tokens = u32::from(matches!(reason, FinishReason::Stop { .. }));
        let score = self.score(beam.cumulative_logprob, beam.num_tokens - num_stop_tokens);
        // Behind its equals, which came before it.
        let place = self.complete.partition_point(|other| other.score >= score);
        if place >= self.params.width as usize {
            return;
        }
        let (cumulative_logprob, logprobs) = (beam.cumulative_logprob, beam.logprobs());
        let token_ids = logprobs.iter().map(|position| position.token.token_id).collect();
        self.complete.insert(place, Hypothesis { token_ids, logprobs, cumulative_logprob, score, reason });
        self.complete.truncate(self.params.width as usize);
    }

    fn score(&self, cumulative_logprob: f64, num_generated: u32) -> f64 {
        let len = f64::from(self.params.num_prompt_tokens) + f64::from(num_generated);
        cumulative_logprob / len.powf(f64::from(self.params.length_penalty))
    }

    /// All beams are of one length, and the first is the likeliest.
    fn is_done(&self) -> bool {
        let Some(best) = self.beams.first() else { return true };
        if best.num_tokens >= self.params.max_tokens {
            return true;
        }
        let Some(worst) = self.complete.get(self.params.width as usize - 1) else { return false };
        let if_it_ended = self.score(best.cumulative_logprob, best.num_tokens);
        match self.params.early_stopping {
            EarlyStopping::Always => true,
            EarlyStopping::Heuristic => worst.score >= if_it_ended,
            // Log-probabilities are never above 0, so a beam is at its best either here or, without losing anything
            // more, at the greatest length.
            EarlyStopping::Never => {
                let at_the_end = self.score(best.cumulative_logprob, self.params.max_tokens);
                worst.score >= if_it_ended.max(at_the_end)
            }
        }
    }
}

impl Beam {
    fn extended(&self, token: TokenLogprob, top: &[TokenLogprob], cumulative_logprob: f64) -> Self {
        let logprobs = PositionLogprobs { token, top: top.to_vec() };
        let last = Some(Arc::new(Link { logprobs, before: self.last.clone() }));
        Self { cumulative_logprob, num_tokens: self.num_tokens + 1, last }
    }

    fn logprobs(&self) -> Vec<PositionLogprobs> {
        let chain = std::iter::successors(self.last.as_deref(), |link| link.before.as_deref());
        let mut logprobs: Vec<_> = chain.map(|link| link.logprobs.clone()).collect();
        logprobs.reverse();
        logprobs
    }
}
