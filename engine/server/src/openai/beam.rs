//! `use_beam_search` and the fields that go with it.

use regatta_core::beam::EarlyStopping;
use serde_json::{Value, json};

use super::{fields::Fields, numbers::number};
use crate::{engine::BeamOptions, http::ApiError};

/// A penalty beyond this makes every score zero or infinite.
const MAX_LENGTH_PENALTY: f32 = 10.0;

/// Takes the fields out of a request; `None` when it does not search. `n` is the number of beams.
///
/// # Errors
/// 400 with the name of a field that is wrong, or that has no meaning where nothing is drawn.
pub(super) fn take(fields: &mut Fields<'_>) -> Result<Option<BeamOptions>, ApiError> {
    if !fields.take("use_beam_search")?.unwrap_or(false) {
        return Ok(None);
    }
    for (name, neutral) in without_meaning() {
        let given = fields.take_free_form::<Value>(name)?;
        if given.is_some_and(|given| !same(&given, &neutral)) {
            let reason = format!("{name} has no meaning with use_beam_search; remove one of them.");
            return Err(ApiError::invalid(name, reason));
        }
    }
    let in_range = |penalty: f32| penalty.abs() <= MAX_LENGTH_PENALTY;
    let range = format!("between -{MAX_LENGTH_PENALTY} and {MAX_LENGTH_PENALTY}");
    Ok(Some(BeamOptions {
        length_penalty: number(fields, "length_penalty", 1.0, &range, in_range)?,
        early_stopping: early_stopping(fields)?,
    }))
}

/// Fields about drawing, each with the value that asks for nothing. A temperature is taken and changes nothing.
fn without_meaning() -> [(&'static str, Value); 14] {
    [
        ("allowed_token_ids", json!(null)),
        ("bad_words", json!([])),
        ("frequency_penalty", json!(0)),
        ("logit_bias", json!({})),
        ("min_p", json!(0)),
        ("min_tokens", json!(0)),
        ("presence_penalty", json!(0)),
        ("prompt_logprobs", json!(null)),
        ("repetition_penalty", json!(1)),
        ("seed", json!(null)),
        ("stop", json!([])),
        ("top_k", json!(0)),
        ("top_p", json!(1)),
        ("typical_p", json!(1)),
    ]
}

/// Equality in which 0 and 0.0 are the same number, and -1 is the same `top_k` as 0.
fn same(given: &Value, neutral: &Value) -> bool {
    match (given.as_f64(), neutral.as_f64()) {
        (Some(given), Some(neutral)) => given == neutral || (neutral == 0.0 && given == -1.0),
        _ => given == neutral,
    }
}

fn early_stopping(fields: &mut Fields<'_>) -> Result<EarlyStopping, ApiError> {
    let name = "early_stopping";
    match fields.take_free_form::<Value>(name)? {
        None => Ok(EarlyStopping::Never),
        Some(Value::Bool(true)) => Ok(EarlyStopping::Always),
        Some(Value::Bool(false)) => Ok(EarlyStopping::Heuristic),
        Some(Value::String(text)) if text == "never" => Ok(EarlyStopping::Never),
        Some(_) => Err(ApiError::invalid(name, "early_stopping must be true, false or \"never\".")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Option<BeamOptions>, String> {
        let mut fields = Fields::parse(body.as_bytes()).unwrap();
        take(&mut fields).map_err(|error| error.body()["error"]["param"].as_str().unwrap().to_owned())
    }

    #[test]
    fn a_request_searches_only_when_it_says_so() {
        assert_eq!(read("{}"), Ok(None));
        assert_eq!(read(r#"{"use_beam_search": false, "top_p": 0.5}"#), Ok(None));
        let options =
            |length_penalty, early_stopping| Ok(Some(BeamOptions { length_penalty, early_stopping }));
        assert_eq!(read(r#"{"use_beam_search": true}"#), options(1.0, EarlyStopping::Never));
        let body = r#"{"use_beam_search": true, "length_penalty": -0.5, "early_stopping": true}"#;
        assert_eq!(read(body), options(-0.5, EarlyStopping::Always));
        let body =
            r#"{"use_beam_search": true, "early_stopping": false, "top_k": -1, "top_p": 1.0, "stop": []}"#;
        assert_eq!(read(body), options(1.0, EarlyStopping::Heuristic));
    }

    #[test]
    fn what_has_no_meaning_is_refused_by_name() {
        for (name, value) in [
            ("top_p", "0.9"),
            ("min_tokens", "1"),
            ("seed", "0"),
            ("stop", r#""x""#),
            ("length_penalty", "11"),
        ] {
            assert_eq!(
                read(&format!(r#"{{"use_beam_search": true, "{name}": {value}}}"#)),
                Err(name.to_owned())
            );
        }
        assert_eq!(
            read(r#"{"use_beam_search": true, "early_stopping": 3}"#),
            Err("early_stopping".to_owned())
        );
    }
}
