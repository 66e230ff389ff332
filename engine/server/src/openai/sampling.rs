//! The fields that completions and chat completions share: how tokens are chosen and when to stop.

use regatta_core::sampling::SamplingParams;

use super::{
    beam,
    bounded::{OneOrMany, UpTo},
    defaults::GenerationDefaults,
    fields::Fields,
    numbers::{number, whole},
    token_lists::Vocabulary,
};
use crate::{engine::BeamOptions, http::ApiError, text::Tokenizer};

/// Most choices of one prompt.
pub(super) const MAX_N: u32 = 128;
/// Bounds of stop strings: each is looked for in every piece of text.
const MAX_STOP_STRINGS: usize = 16;
const MAX_STOP_BYTES: usize = 1024;

/// The shared fields, checked.
#[derive(Clone, Debug)]
pub(super) struct Sampling {
    pub(super) n: u32,
    /// Set when the likeliest answers are searched for.
    pub(super) beams: Option<BeamOptions>,
    /// All that is the same for every prompt and choice; its stop tokens are the request's own.
    params: SamplingParams,
    /// Lower goes first.
    pub(super) priority: i32,
    seed: Option<u64>,
    ignore_eos: bool,
    pub(super) stop: Vec<String>,
    pub(super) include_stop_str_in_output: bool,
    pub(super) skip_special_tokens: bool,
    /// `max_tokens` as asked for.
    pub(super) max_tokens: Option<u32>,
}

impl Sampling {
    /// Takes the fields out of a request.
    ///
    /// # Errors
    /// 400 with the field's name.
    pub(super) fn take(
        fields: &mut Fields<'_>,
        defaults: &GenerationDefaults,
        vocabulary: Vocabulary<'_>,
    ) -> Result<Self, ApiError> {
        let beams = beam::take(fields)?;
        let params = params(fields, defaults, vocabulary)?;
        let n = whole("n", fields.take("n")?.unwrap_or(1), 1, MAX_N)?;
        let sampling = Self {
            n,
            beams,
            params,
            // Any 64 bits are a seed; two's complement keeps different seeds different.
            seed: fields.take::<i64>("seed")?.map(i64::cast_unsigned),
            priority: fields.take("priority")?.unwrap_or(0),
            ignore_eos: fields.take("ignore_eos")?.unwrap_or(false),
            stop: stop_strings(fields)?,
            include_stop_str_in_output: fields.take("include_stop_str_in_output")?.unwrap_or(false),
            skip_special_tokens: fields.take("skip_special_tokens")?.unwrap_or(true),
            max_tokens: fields.take("max_tokens")?,
        };
        sampling.check_greedy("n", n)?;
        sampling.check_allowed(vocabulary.tokenizer)?;
        Ok(sampling)
    }

    /// Refuses a request whose first token could be none.
    ///
    /// # Errors
    /// 400 with the field's name.
    fn check_allowed(&self, tokenizer: &Tokenizer) -> Result<(), ApiError> {
        let Some(allowed) = &self.params.allowed_token_ids else { return Ok(()) };
        let ends = [self.eos_token_ids(tokenizer), self.stop_token_ids()];
        let ends = if self.params.min_tokens > 0 { &ends[..] } else { &[] };
        let is_left = |id: &u32| {
            !ends.iter().any(|ids| ids.contains(id))
                && !self.params.bad_words.iter().any(|word| word[..] == [*id])
        };
        if allowed.iter().any(is_left) {
            return Ok(());
        }
        let reason = "allowed_token_ids: bad_words and min_tokens exclude all of them; allow others.";
        Err(ApiError::invalid("allowed_token_ids", reason))
    }

    /// Refuses several samples of a sequence that is not sampled: they would all be the same.
    ///
    /// # Errors
    /// 400 with the field's name.
    pub(super) fn check_greedy(&self, name: &'static str, num_samples: u32) -> Result<(), ApiError> {
        if num_samples > 1 && self.params.temperature == 0.0 && self.beams.is_none() {
            let reason = format!("{name} must be 1 when using greedy sampling, got {num_samples}.");
            return Err(ApiError::invalid(name, reason));
        }
        Ok(())
    }

    /// Holds `min_tokens` against the most tokens that there can be.
    ///
    /// # Errors
    /// 400 with the field's name.
    pub(super) fn check_min_tokens(&self, max_tokens: u32) -> Result<(), ApiError> {
        let min_tokens = self.params.min_tokens;
        if min_tokens <= max_tokens {
            return Ok(());
        }
        let reason =
            format!("min_tokens must be less than or equal to max_tokens={max_tokens}, got {min_tokens}.");
        Err(ApiError::invalid("min_tokens", reason))
    }

    /// Stop strings and tokens count only after this many tokens.
    pub(super) fn min_tokens(&self) -> u32 {
        self.params.min_tokens
    }

    /// The request's own stop tokens.
    pub(super) fn stop_token_ids(&self) -> &[u32] {
        &self.params.stop_token_ids
    }

    /// The model's ends of sequence, unless the request ignores them.
    pub(super) fn eos_token_ids<'a>(&self, tokenizer: &'a Tokenizer) -> &'a [u32] {
        if self.ignore_eos { &[] } else { tokenizer.eos_token_ids() }
    }

    /// What the engine is told, with `max_tokens` to generate. `seed` is for a request that brought none.
    pub(super) fn params(&self, max_tokens: u32, eos_token_ids: &[u32], seed: u64) -> SamplingParams {
        let mut stop_token_ids = [eos_token_ids, self.stop_token_ids()].concat();
        stop_token_ids.sort_unstable();
        stop_token_ids.dedup();
        SamplingParams { seed: self.seed.unwrap_or(seed), max_tokens, stop_token_ids, ..self.params.clone() }
    }
}

fn params(
    fields: &mut Fields<'_>,
    defaults: &GenerationDefaults,
    vocabulary: Vocabulary<'_>,
) -> Result<SamplingParams, ApiError> {
    let penalty = |value: f32| (-2.0..=2.0).contains(&value);
    let share = |value: f32| value > 0.0 && value <= 1.0;
    let temperature = defaults.temperature.unwrap_or(1.0);
    Ok(SamplingParams {
        temperature: number(fields, "temperature", temperature, "non-negative", |value| value >= 0.0)?,
        top_p: number(fields, "top_p", defaults.top_p.unwrap_or(1.0), "in (0, 1]", share)?,
        top_k: top_k(fields, defaults)?,
        min_p: number(fields, "min_p", defaults.min_p.unwrap_or(0.0), "in [0, 1]", |value| {
            (0.0..=1.0).contains(&value)
        })?,
        typical_p: number(fields, "typical_p", 1.0, "in (0, 1]", share)?,
        presence_penalty: number(fields, "presence_penalty", 0.0, "in [-2, 2]", penalty)?,
        frequency_penalty: number(fields, "frequency_penalty", 0.0, "in [-2, 2]", penalty)?,
        repetition_penalty: number(
            fields,
            "repetition_penalty",
            defaults.repetition_penalty.unwrap_or(1.0),
            "greater than zero",
            |value| value > 0.0,
        )?,
        logit_bias: vocabulary.logit_bias(fields)?,
        allowed_token_ids: vocabulary.allowed_token_ids(fields)?,
        bad_words: vocabulary.bad_words(fields)?,
        min_tokens: fields.take("min_tokens")?.unwrap_or(0),
        stop_token_ids: vocabulary.stop_token_ids(fields)?,
        ..SamplingParams::default()
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::testing;

    fn take(body: &str) -> Result<Sampling, String> {
        let mut fields = Fields::parse(body.as_bytes()).unwrap();
        let tokenizer = testing::tokenizer();
        let vocabulary = Vocabulary { tokenizer: &tokenizer, size: tokenizer.vocab_size() };
        Sampling::take(&mut fields, &GenerationDefaults::default(), vocabulary)
            .map_err(|error| error.body()["error"]["param"].as_str().unwrap().to_owned())
    }

    fn params(body: &str) -> SamplingParams {
        take(body).unwrap().params(5, &[2], 9)
    }

    #[test]
    fn a_value_out_of_range_is_refused_by_name() {
        let cases = [
            (r#"{"temperature": -1}"#, "temperature"),
            (r#"{"top_p": 0}"#, "top_p"),
            (r#"{"top_p": 1.5}"#, "top_p"),
            (r#"{"top_k": -2}"#, "top_k"),
            (r#"{"min_p": 1.1}"#, "min_p"),
            (r#"{"min_p": -0.1}"#, "min_p"),
            (r#"{"typical_p": 0}"#, "typical_p"),
            (r#"{"presence_penalty": 2.1}"#, "presence_penalty"),
            (r#"{"frequency_penalty": -2.1}"#, "frequency_penalty"),
            (r#"{"repetition_penalty": 0}"#, "repetition_penalty"),
            (r#"{"repetition_penalty": 1e39}"#, "repetition_penalty"),
            (r#"{"logit_bias": {"a": 1}}"#, "logit_bias"),
            (r#"{"logit_bias": {"100000": 1}}"#, "logit_bias"),
            (r#"{"logit_bias": [1]}"#, "logit_bias"),
            (r#"{"allowed_token_ids": []}"#, "allowed_token_ids"),
            (r#"{"allowed_token_ids": [100000]}"#, "allowed_token_ids"),
            (r#"{"bad_words": [""]}"#, "bad_words"),
            (r#"{"min_tokens": -1}"#, "min_tokens"),
            (r#"{"n": 0}"#, "n"),
            (r#"{"n": 129}"#, "n"),
            (r#"{"n": 2, "temperature": 0}"#, "n"),
            (r#"{"stop": ""}"#, "stop"),
            (r#"{"stop": ["a", ""]}"#, "stop"),
            (r#"{"stop": [1]}"#, "stop"),
            (r#"{"stop_token_ids": [100000]}"#, "stop_token_ids"),
            (r#"{"max_tokens": -1}"#, "max_tokens"),
            (r#"{"seed": 1.5}"#, "seed"),
        ];
        for (body, param) in cases {
            assert_eq!(take(body).unwrap_err(), param, "{body}");
        }
    }

    #[test]
    fn lists_have_bounds() {
        let many =
            |count: usize, each: &dyn Fn(usize) -> String| (0..count).map(each).collect::<Vec<_>>().join(",");
        let bias =
            |count| format!(r#"{{"logit_bias": {{{}}}}}"#, many(count, &|i| format!(r#""{i:05}": 1"#)));
        assert_eq!(take(&bias(1025)).unwrap_err(), "logit_bias");
        let words = |count| format!(r#"{{"bad_words": [{}]}}"#, many(count, &|_| r#""a""#.to_owned()));
        assert!(take(&words(128)).is_ok());
        assert_eq!(take(&words(129)).unwrap_err(), "bad_words");
        let long = format!(r#"{{"bad_words": ["{}"]}}"#, "a".repeat(257));
        assert_eq!(take(&long).unwrap_err(), "bad_words");
        let stops = format!(r#"{{"stop_token_ids": [{}]}}"#, many(129, &|_| "1".to_owned()));
        assert_eq!(take(&stops).unwrap_err(), "stop_token_ids");
    }

    #[test]
    fn the_requests_own_values_reach_the_engine() {
        let params = params(
            r#"{"temperature": 0.5, "top_p": 0.9, "top_k": -1, "min_p": 0.1, "typical_p": 0.7, "seed": -1,
                "stop_token_ids": [7], "presence_penalty": 0.5, "frequency_penalty": -0.5,
                "repetition_penalty": 1.5, "min_tokens": 3, "allowed_token_ids": [4, 5],
                "logit_bias": {"3": 250, "03": 1, "1": -0.5}}"#,
        );
        let expected = SamplingParams {
            temperature: 0.5,
            top_p: 0.9,
            min_p: 0.1,
            typical_p: 0.7,
            presence_penalty: 0.5,
            frequency_penalty: -0.5,
            repetition_penalty: 1.5,
            min_tokens: 3,
            allowed_token_ids: Some([4, 5].into()),
            logit_bias: [(1, -0.5), (3, 100.0)].into(),
            seed: u64::MAX,
            max_tokens: 5,
            stop_token_ids: vec![2, 7],
            ..SamplingParams::default()
        };
        assert_eq!(params, expected);
    }

    #[test]
    fn a_request_that_leaves_no_token_to_choose_is_refused() {
        let tokenizer = testing::tokenizer();
        let (eos, word) = (tokenizer.eos_token_ids()[0], tokenizer.encode("a", false).unwrap()[0]);
        let some = [
            format!(r#"{{"allowed_token_ids": [{eos}]}}"#),
            format!(r#"{{"allowed_token_ids": [{eos}], "min_tokens": 1, "ignore_eos": true}}"#),
            format!(r#"{{"allowed_token_ids": [{word}, {eos}], "bad_words": ["a"]}}"#),
        ];
        some.iter().for_each(|fields| assert!(take(fields).is_ok(), "{fields}"));
        let none = [
            format!(r#"{{"allowed_token_ids": [{eos}], "min_tokens": 1}}"#),
            r#"{"allowed_token_ids": [7], "min_tokens": 1, "stop_token_ids": [7]}"#.to_owned(),
            format!(r#"{{"allowed_token_ids": [{word}], "bad_words": ["a"]}}"#),
        ];
        none.iter().for_each(|fields| assert_eq!(take(fields).unwrap_err(), "allowed_token_ids", "{fields}"));
    }

    #[test]
    fn a_bad_word_is_also_bad_after_a_space() {
        let tokenizer = testing::tokenizer();
        let encode = |text: &str| tokenizer.encode(text, false).unwrap();
        let bad = |word: &str| params(&format!(r#"{{"bad_words": ["{word}"]}}"#)).bad_words.to_vec();
        // " a" is one token, as "a" is; " hello" is not.
        assert_eq!(bad("a"), [encode("a"), encode(" a")]);
        assert_eq!(bad(" a"), [encode("a"), encode(" a")]);
        assert_eq!(bad("hello"), [encode("hello")]);
    }

    #[test]
    fn no_more_tokens_can_be_demanded_than_allowed() {
        let sampling = take(r#"{"min_tokens": 6}"#).unwrap();
        assert!(sampling.check_min_tokens(6).is_ok() && sampling.check_min_tokens(5).is_err());
    }

    #[test]
    fn ignoring_the_end_of_sequence_keeps_the_requests_own_stops() {
        let sampling = take(r#"{"ignore_eos": true, "stop_token_ids": [7]}"#).unwrap();
        assert!(sampling.eos_token_ids(&testing::tokenizer()).is_empty());
        assert_eq!(sampling.params(5, &[], 9).stop_token_ids, [7]);
    }
}
