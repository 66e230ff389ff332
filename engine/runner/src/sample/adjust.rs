//! Masks, bias and penalties: what changes logits before temperature.

use regatta_core::sampling::SamplingParams;

use super::{History, Place};

/// The logits that are sampled from. `buffer` holds them where they are not the model's own. Ids outside the
/// vocabulary change nothing.
pub(super) fn adjusted<'a>(logits: &'a [f32], place: Place<'_>, buffer: &'a mut Vec<f32>) -> &'a [f32] {
    let params = place.params;
    let stops = if place.num_generated < params.min_tokens { &params.stop_token_ids[..] } else { &[] };
    let masks = params.allowed_token_ids.is_some() || !params.bad_words.is_empty() || !stops.is_empty();
    if !masks && params.logit_bias.is_empty() && !params.penalises() {
        return logits;
    }
    allow(logits, params.allowed_token_ids.as_deref(), buffer);
    let generated = place.history.map_or(&[][..], History::generated);
    let forbidden = params.bad_words.iter().filter_map(|word| completion(word, generated));
    for token_id in forbidden.chain(stops.iter().copied()) {
        change(buffer, token_id, |_| f32::NEG_INFINITY);
    }
    for &(token_id, bias) in params.logit_bias.iter() {
        change(buffer, token_id, |logit| logit + bias);
    }
    if params.penalises() {
        penalise(buffer, params, place.history);
    }
    buffer
}

fn change(logits: &mut [f32], token_id: u32, new: impl FnOnce(f32) -> f32) {
    if let Some(logit) = logits.get_mut(token_id as usize) {
        *logit = new(*logit);
    }
}

/// Copies the logits of the allowed tokens; the others become impossible.
fn allow(logits: &[f32], allowed: Option<&[u32]>, buffer: &mut Vec<f32>) {
    buffer.clear();
    let Some(allowed) = allowed else { return buffer.extend_from_slice(logits) };
    buffer.resize(logits.len(), f32::NEG_INFINITY);
    for &token_id in allowed {
        change(buffer, token_id, |_| logits[token_id as usize]);
    }
}

/// The token that would complete `word` after what was generated.
fn completion(word: &[u32], generated: &[u32]) -> Option<u32> {
    let (&last, before) = word.split_last()?;
    generated.ends_with(before).then_some(last)
}

/// The repetition penalty is that of Keskar et al. (CTRL, 2019); frequency and presence penalties are OpenAI's.
fn penalise(logits: &mut [f32], params: &SamplingParams, history: Option<&History>) {
    let repetition = params.repetition_penalty;
    for (token_id, count) in history.into_iter().flat_map(History::counts) {
        change(logits, token_id, |logit| {
            let logit = if logit > 0.0 { logit / repetition } else { logit * repetition };
            if count == 0 {
                return logit;
            }
            logit - params.frequency_penalty * count as f32 - params.presence_penalty
        });
    }
}
