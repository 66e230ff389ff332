//! Beam searches under way: each drives several sequences of the scheduler, and its streams get the result at the end.
//!
//! A beam is a sequence that is held after each token. Once all beams of a search are, [`BeamSearch`] says how they go
//! on: a beam with one continuation is resumed, further ones of it are forks, and a beam without any is cancelled.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use regatta_core::beam::{BeamParams, BeamSearch, Extension, Hypothesis, Round};
use regatta_core::event::{Event, FinishReason};
use regatta_core::plan::TokenLogprob;
use regatta_core::replay::{CancelReason, Observation};
use regatta_core::sampling::SamplingParams;
use regatta_core::scheduler::{NewSequence, Scheduler, Update};
use regatta_core::sequence::SequenceId;

use crate::record::Recording;

/// All searches.
#[derive(Default)]
pub(super) struct Searches {
    /// By the id of the first stream, which is also the first beam's.
    searches: HashMap<SequenceId, Search>,
    /// Whose each beam is.
    of_beam: HashMap<SequenceId, SequenceId>,
    /// Whose each stream is.
    of_stream: HashMap<SequenceId, SequenceId>,
}

/// What a search starts from.
#[derive(Clone, Debug)]
pub(super) struct NewSearch {
    pub(super) params: BeamParams,
    /// Whether the log-probabilities of the result are wanted.
    pub(super) reports_logprobs: bool,
}

struct Search {
    search: BeamSearch,
    /// The first beam, as it was added: forks differ in what they continue.
    first: NewSequence,
    reports_logprobs: bool,
    streams: Range<u64>,
    beams: Vec<Beam>,
    /// The next fork's; a place in the order of arrival was kept for each.
    next_id: u64,
}

struct Beam {
    id: SequenceId,
    /// The prompt and what follows it.
    tokens: Vec<u32>,
    /// The likeliest next tokens, once they are known.
    likeliest: Option<Vec<TokenLogprob>>,
}

impl NewSearch {
    /// Ids that forks may need, beside those of the streams.
    pub(super) fn num_reserved_ids(&self) -> u64 {
        u64::from(self.params.width) * u64::from(self.params.max_tokens)
    }

    /// How a beam's tokens are "chosen": its likeliest ones are asked for, and nothing is drawn.
    pub(super) fn sampling(&self, request: &SamplingParams) -> SamplingParams {
        SamplingParams {
            temperature: 0.0,
            logprobs: Some(self.params.width.saturating_mul(2)),
            max_tokens: self.params.max_tokens,
            seed: request.seed,
            ..SamplingParams::default()
        }
    }
}

impl Searches {
    /// Begins a search whose first beam is `first`, which is added to the scheduler by the caller.
    pub(super) fn start(&mut self, first: &NewSequence, new: NewSearch) {
        let id = first.id;
        let streams = id.0..id.0 + u64::from(new.params.width);
        self.of_beam.insert(id, id);
        self.of_stream.extend(streams.clone().map(|stream| (SequenceId(stream), id)));
        let beam = Beam { id, tokens: first.prompt.to_vec(), likeliest: None };
        let search = Search {
            first: first.clone(),
            search: BeamSearch::new(new.params),
            reports_logprobs: new.reports_logprobs,
            next_id: streams.end,
            streams,
            beams: vec![beam],
        };
        self.searches.insert(id, search);
    }

    /// Ends the search that `stream` belongs to, if there is one: nobody wants its result any more.
    pub(super) fn cancel(
        &mut self,
        stream: SequenceId,
        scheduler: &mut Scheduler,
        updates: &mut Vec<Update>,
        recording: &mut Recording,
    ) -> bool {
        let Some(&owner) = self.of_stream.get(&stream) else { return false };
        let end = self.searches[&owner].finished(FinishReason::Abort, 0);
        self.end(owner, &end, scheduler, updates, recording);
        true
    }

    /// Takes what happened to beams out of `updates`, lets the searches go on that can, and puts the results of those
    /// that end in the place.
    pub(super) fn advance(
        &mut self,
        scheduler: &mut Scheduler,
        updates: &mut Vec<Update>,
        recording: &mut Recording,
    ) {
        if self.searches.is_empty() {
            return;
        }
        let of_beams: Vec<Update> =
            updates.extract_if(.., |update| self.of_beam.contains_key(&update.id)).collect();
        for Update { id, event } in of_beams {
            let Some(&owner) = self.of_beam.get(&id) else { continue };
            match event {
                Event::Token { logprobs, .. } => {
                    let likeliest = logprobs.map(|position| position.top).unwrap_or_default();
                    if self.searches.get_mut(&owner).is_some_and(|search| search.offer(id, likeliest)) {
                        self.next_round(owner, scheduler, updates, recording);
                    }
                }
                // The first beam's: it alone computes the prompt, and has the id of the first stream.
                Event::PromptComputed { .. } if id == owner => updates.push(Update { id, event }),
                Event::PromptLogprobs(_) | Event::PromptComputed { .. } => {}
                end @ (Event::Finished { .. } | Event::Failed { .. }) => {
                    self.end(owner, &end, scheduler, updates, recording);
                }
            }
        }
    }

    fn next_round(
        &mut self,
        owner: SequenceId,
        scheduler: &mut Scheduler,
        updates: &mut Vec<Update>,
        recording: &mut Recording,
    ) {
        let search = self.searches.get_mut(&owner).expect("the owner of a beam is a search under way");
        match search.round() {
            Round::Done(hypotheses) => {
                let streams = search.streams.clone().map(SequenceId);
                for (id, hypothesis) in streams.zip(hypotheses) {
                    search.report(id, hypothesis, updates);
                }
                // Where the vocabulary has no more hypotheses, the streams that are left end empty.
                let end = search.finished(FinishReason::Length, 0);
                self.end(owner, &end, scheduler, updates, recording);
            }
            Round::Continue(extensions) => {
                let former = std::mem::take(&mut search.beams);
                let mut refused = None;
                let mut goes_on = vec![false; former.len()];
                for Extension { parent, token_id } in extensions {
                    let parent_goes_on = std::mem::replace(&mut goes_on[parent], true);
                    let beam = former[parent].extended(token_id);
                    if parent_goes_on {
                        let fork = search.fork(former[parent].id, beam);
                        self.of_beam.insert(fork.id, owner);
                        recording.see(|| Observation::Added(fork.clone()));
                        refused = refused.or(scheduler.add(fork).err());
                    } else {
                        scheduler.resume(beam.id, token_id);
                        recording.see(|| Observation::Resumed(beam.id, token_id));
                        search.beams.push(beam);
                    }
                }
                let given_up = former.iter().zip(goes_on).filter(|(_, goes_on)| !goes_on);
                given_up.for_each(|(beam, _)| self.give_up(beam.id, scheduler, recording));
                if let Some(refusal) = refused {
                    let end = Event::Failed { reason: refusal.to_string() };
                    self.end(owner, &end, scheduler, updates, recording);
                }
            }
        }
    }

    /// Ends a beam.
    fn give_up(&mut self, id: SequenceId, scheduler: &mut Scheduler, recording: &mut Recording) {
        self.of_beam.remove(&id);
        scheduler.cancel(id, &mut Vec::new());
        recording.see(|| Observation::Cancelled(id, CancelReason::Beam));
    }

    /// Ends a search: `end` is for the streams that have no end yet.
    fn end(
        &mut self,
        owner: SequenceId,
        end: &Event,
        scheduler: &mut Scheduler,
        updates: &mut Vec<Update>,
        recording: &mut Recording,
    ) {
        let Some(search) = self.searches.remove(&owner) else { return };
        for beam in &search.beams {
            self.give_up(beam.id, scheduler, recording);
        }
        for id in search.streams.map(SequenceId) {
            self.of_stream.remove(&id);
            // A second terminal event of a stream finds nobody.
            updates.push(Update { id, event: end.clone() });
        }
    }
}

impl Search {
    /// Notes a beam's likeliest next tokens; whether those of all beams are known.
    fn offer(&mut self, id: SequenceId, likeliest: Vec<TokenLogprob>) -> bool {
        if let Some(beam) = self.beams.iter_mut().find(|beam| beam.id == id) {
            beam.likeliest = Some(likeliest);
        }
        self.beams.iter().all(|beam| beam.likeliest.is_some())
    }

    fn round(&mut self) -> Round {
        let likeliest: Vec<&[TokenLogprob]> =
            self.beams.iter().map(|beam| beam.likeliest.as_deref().unwrap_or_default()).collect();
        self.search.advance(&likeliest)
    }

    /// Makes `beam` a sequence of its own, which has all but its last token in common with `parent`.
    fn fork(&mut self, parent: SequenceId, beam: Beam) -> NewSequence {
        let id = SequenceId(self.next_id);
        self.next_id += 1;
        let num_generated = beam.tokens.len() as u32 - self.num_prompt_tokens();
        let sampling = &self.first.sampling;
        let max_tokens = sampling.max_tokens.saturating_sub(num_generated).max(1);
        let sampling = Arc::new(SamplingParams { max_tokens, ..(**sampling).clone() });
        let prompt = beam.tokens.as_slice().into();
        self.beams.push(Beam { id, ..beam });
        NewSequence { id, prompt, sampling, forks: Some(parent), ..self.first.clone() }
    }

    fn report(&self, id: SequenceId, hypothesis: Hypothesis, updates: &mut Vec<Update>) {
        let num_generated_tokens = hypothesis.token_ids.len() as u32;
        for position in hypothesis.logprobs {
            let token_id = position.token.token_id;
            let logprobs = self.reports_logprobs.then_some(position);
            updates.push(Update { id, event: Event::Token { token_id, logprobs } });
        }
        updates.push(Update { id, event: self.finished(hypothesis.reason, num_generated_tokens) });
    }

    fn num_prompt_tokens(&self) -> u32 {
        self.first.prompt.len() as u32
    }

    fn finished(&self, reason: FinishReason, num_generated_tokens: u32) -> Event {
        let num_prompt_tokens = self.num_prompt_tokens();
        Event::Finished { reason, num_prompt_tokens, num_generated_tokens, num_cached_tokens: 0 }
    }
}

impl Beam {
    fn extended(&self, token_id: u32) -> Self {
        let tokens = self.tokens.iter().copied().chain([token_id]).collect();
        Self { id: self.id, tokens, likeliest: None }
    }
}
