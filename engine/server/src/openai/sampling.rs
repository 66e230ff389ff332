//! The fields that completions and chat completions share: how tokens are chosen and when to stop.

use regatta_core::sampling::SamplingParams;

use super::{
    bounded::{OneOrMany, UpTo},
    defaults::GenerationDefaults,
    fields::Fields,
};
use crate::{http::ApiError, text::Tokenizer};

/// Most choices of one prompt.
const MAX_N: u32 = 128;
/// Bounds of stop strings: each is looked for in every piece of text.
const MAX_STOP_STRINGS: usize = 16;
const MAX_STOP_BYTES: usize = 1024;
const MAX_STOP_TOKEN_IDS: usize = 128;

/// The shared fields, checked.
#[derive(Clone, Debug)]
pub(super) struct Sampling {
    pub(super) n: u32,
    temperature: f32,
    top_p: f32,
    top_k: u32,
    seed: Option<u64>,
    /// The request's own stop token ids.
    pub(super) stop_token_ids: Vec<u32>,
    ignore_eos: bool,
    pub(super) stop: Vec<String>,
    pub(super) include_stop_str_in_output: bool,
    pub(super) skip_special_tokens: bool,
    /// `max_tokens` as asked for.
    pub(super) max_tokens: Option<u32>,
}

impl Sampling {
    /// Takes the fields out of a request. `vocab_size` bounds token ids.
    ///
    /// # Errors
    /// 400 with the field's name.
    pub(super) fn take(
        fields: &mut Fields<'_>,
        defaults: &GenerationDefaults,
        vocab_size: usize,
    ) -> Result<Self, ApiError> {
        let temperature = temperature(fields, defaults)?;
        let n = fields.take("n")?.unwrap_or(1);
        if n == 0 || n > MAX_N {
            return Err(ApiError::invalid("n", format!("n must be between 1 and {MAX_N}, got {n}.")));
        }
        if n > 1 && temperature == 0.0 {
            return Err(ApiError::invalid("n", format!("n must be 1 when using greedy sampling, got {n}.")));
        }
        Ok(Self {
            n,
            temperature,
            top_p: top_p(fields, defaults)?,
            top_k: top_k(fields, defaults)?,
            // Any 64 bits are a seed; two's complement keeps different seeds different.
            seed: fields.take::<i64>("seed")?.map(i64::cast_unsigned),
            stop_token_ids: stop_token_ids(fields, vocab_size)?,
            ignore_eos: fields.take("ignore_eos")?.unwrap_or(false),
            stop: stop_strings(fields)?,
            include_stop_str_in_output: fields.take("include_stop_str_in_output")?.unwrap_or(false),
            skip_special_tokens: fields.take("skip_special_tokens")?.unwrap_or(true),
            max_tokens: fields.take("max_tokens")?,
        })
    }

    /// The model's ends of sequence, unless the request ignores them.
    pub(super) fn eos_token_ids<'a>(&self, tokenizer: &'a Tokenizer) -> &'a [u32] {
        if self.ignore_eos { &[] } else { tokenizer.eos_token_ids() }
    }

    /// What the engine is told, with `max_tokens` to generate. `seed` is for a request that brought none.
    pub(super) fn params(&self, max_tokens: u32, eos_token_ids: &[u32], seed: u64) -> SamplingParams {
        let mut stop_token_ids = [eos_token_ids, &self.stop_token_ids].concat();
        stop_token_ids.sort_unstable();
        stop_token_ids.dedup();
        SamplingParams {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            seed: self.seed.unwrap_or(seed),
            max_tokens,
            stop_token_ids,
            ..SamplingParams::default()
        }
    }
}

fn temperature(fields: &mut Fields<'_>, defaults: &GenerationDefaults) -> Result<f32, ApiError> {
    let temperature: f32 = fields.take("temperature")?.or(defaults.temperature).unwrap_or(1.0);
    if temperature >= 0.0 && temperature.is_finite() {
        return Ok(temperature);
    }
    let message = format!("temperature must be non-negative, got {temperature}.");
    Err(ApiError::invalid("temperature", message))
}

fn top_p(fields: &mut Fields<'_>, defaults: &GenerationDefaults) -> Result<f32, ApiError> {
    let top_p: f32 = fields.take("top_p")?.or(defaults.top_p).unwrap_or(1.0);
    if top_p > 0.0 && top_p <= 1.0 {
        return Ok(top_p);
    }
    Err(ApiError::invalid("top_p", format!("top_p must be in (0, 1], got {top_p}.")))
}

fn top_k(fields: &mut Fields<'_>, defaults: &GenerationDefaults) -> Result<u32, ApiError> {
    let top_k: i64 = fields.take("top_k")?.or(defaults.top_k).unwrap_or(0);
    if top_k < -1 {
        let message = format!("top_k must be 0 (disable), -1 (disable), or at least 1, got {top_k}.");
        return Err(ApiError::invalid("top_k", message));
    }
    // A value beyond u32 keeps every token of any vocabulary.
    Ok(u32::try_from(top_k.max(0)).unwrap_or(0))
}

fn stop_strings(fields: &mut Fields<'_>) -> Result<Vec<String>, ApiError> {
    let stop = match fields.take::<OneOrMany<String, MAX_STOP_STRINGS>>("stop")? {
        None => Vec::new(),
        Some(OneOrMany::One(stop)) => vec![stop],
        Some(OneOrMany::Many(UpTo(stops))) => stops,
    };
    if stop.iter().any(|stop| stop.len() > MAX_STOP_BYTES) {
        return Err(ApiError::invalid(
            "stop",
            format!("stop: a string has more than {MAX_STOP_BYTES} bytes."),
        ));
    }
    if stop.iter().any(String::is_empty) {
        return Err(ApiError::invalid("stop", "stop cannot contain an empty string."));
    }
    Ok(stop)
}

fn stop_token_ids(fields: &mut Fields<'_>, vocab_size: usize) -> Result<Vec<u32>, ApiError> {
    let UpTo::<u32, MAX_STOP_TOKEN_IDS>(ids) = fields.take("stop_token_ids")?.unwrap_or_default();
    match ids.iter().find(|&&id| id as usize >= vocab_size) {
        Some(id) => Err(ApiError::invalid("stop_token_ids", format!("token id {id} is out of vocabulary."))),
        None => Ok(ids),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(body: &str) -> Result<Sampling, String> {
        let mut fields = Fields::parse(body.as_bytes()).unwrap();
        Sampling::take(&mut fields, &GenerationDefaults::default(), 100)
            .map_err(|error| error.body()["error"]["param"].as_str().unwrap().to_owned())
    }

    #[test]
    fn a_value_out_of_range_is_refused_by_name() {
        let cases = [
            (r#"{"temperature": -1}"#, "temperature"),
            (r#"{"top_p": 0}"#, "top_p"),
            (r#"{"top_p": 1.5}"#, "top_p"),
            (r#"{"top_k": -2}"#, "top_k"),
            (r#"{"n": 0}"#, "n"),
            (r#"{"n": 129}"#, "n"),
            (r#"{"n": 2, "temperature": 0}"#, "n"),
            (r#"{"stop": ""}"#, "stop"),
            (r#"{"stop": ["a", ""]}"#, "stop"),
            (r#"{"stop": [1]}"#, "stop"),
            (r#"{"stop_token_ids": [100]}"#, "stop_token_ids"),
            (r#"{"max_tokens": -1}"#, "max_tokens"),
            (r#"{"seed": 1.5}"#, "seed"),
        ];
        for (body, param) in cases {
            assert_eq!(take(body).unwrap_err(), param, "{body}");
        }
    }

    #[test]
    fn the_requests_own_values_reach_the_engine() {
        let sampling =
            take(r#"{"temperature": 0.5, "top_p": 0.9, "top_k": -1, "seed": -1, "stop_token_ids": [7]}"#)
                .unwrap();
        let params = sampling.params(5, &[2], 9);
        assert_eq!((params.temperature, params.top_p, params.top_k), (0.5, 0.9, 0));
        assert_eq!((params.seed, params.max_tokens), (u64::MAX, 5));
        assert_eq!(params.stop_token_ids, [2, 7]);
    }

    #[test]
    fn ignoring_the_end_of_sequence_keeps_the_requests_own_stops() {
        let sampling = take(r#"{"ignore_eos": true, "stop_token_ids": [7]}"#).unwrap();
        assert!(sampling.ignore_eos);
        assert_eq!(sampling.params(5, &[], 9).stop_token_ids, [7]);
    }
}
