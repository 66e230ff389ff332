//! A request's fields by name: each is taken once, and what nobody takes is refused, so that nothing is accepted
//! that is not honoured.

use std::{collections::HashMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::ignored;
use crate::http::ApiError;

/// Most fields of a request.
const MAX_FIELDS: usize = 128;
/// Longest JSON text of a field that may have any shape: once it is read it may take a hundred times as much memory.
pub(super) const MAX_FREE_FORM_BYTES: usize = 64 << 10;

/// The fields of a JSON object, not yet read.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    left: HashMap<String, &'a RawValue>,
    /// Names that were looked for: what a name that nobody knows may have been meant for.
    asked: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// # Errors
    /// 400 when `body` is not one JSON object.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, ApiError> {
        serde_json::from_slice(body)
            .map_err(|error| ApiError::malformed(format!("the body is not a valid JSON object: {error}")))
    }

    /// The fields of an object inside a request.
    ///
    /// # Errors
    /// What is wrong with `raw`.
    pub(super) fn within(raw: &'a RawValue) -> Result<Self, String> {
        serde_json::from_str(raw.get()).map_err(|error| cause(&error))
    }

    /// Reads the field `name`; `None` when it is absent or null.
    ///
    /// # Errors
    /// 400 with the field's name when its value has another type.
    pub(super) fn take<T: Deserialize<'a>>(&mut self, name: &'static str) -> Result<Option<T>, ApiError> {
        self.read(name).map_err(|reason| ApiError::invalid(name, reason))
    }

    /// As [`Self::take`], for a value of any shape.
    ///
    /// # Errors
    /// As there, and when it is longer than [`MAX_FREE_FORM_BYTES`].
    pub(super) fn take_free_form<T: DeserializeOwned>(
        &mut self,
        name: &'static str,
    ) -> Result<Option<T>, ApiError> {
        let Some(raw) = self.take::<&RawValue>(name)? else { return Ok(None) };
        if raw.get().len() > MAX_FREE_FORM_BYTES {
            let reason = format!("{name} is longer than {MAX_FREE_FORM_BYTES} bytes of JSON; shorten it.");
            return Err(ApiError::invalid(name, reason));
        }
        let value = serde_json::from_str(raw.get());
        value.map(Some).map_err(|error| ApiError::invalid(name, format!("{name}: {}", cause(&error))))
    }

    /// As [`Self::take`], for an object inside a request.
    ///
    /// # Errors
    /// A sentence with the field's name.
    pub(super) fn read<T: Deserialize<'a>>(&mut self, name: &'static str) -> Result<Option<T>, String> {
        self.asked.push(name);
        let Some(raw) = self.left.remove(name) else { return Ok(None) };
        serde_json::from_str(raw.get()).map_err(|error| format!("{name}: {}", cause(&error)))
    }

    /// Ends the reading of an object inside a request: what was not read must be null.
    ///
    /// # Errors
    /// A sentence with the first such field's name.
    pub(super) fn end(self) -> Result<(), String> {
        let left =
            self.left.into_iter().filter(|(_, value)| value.get() != "null").map(|(name, _)| name).min();
        left.map_or(Ok(()), |name| Err(ignored::unknown_within(&name, &self.asked)))
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// 400 with the name of a field that was not taken, unless leaving it out changes nothing.
    pub(super) fn finish(self) -> Result<(), ApiError> {
        let mut left: Vec<_> = self.left.into_iter().collect();
        left.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        left.into_iter().try_for_each(|(name, value)| ignored::check(&name, value.get(), &self.asked))
    }
}

/// serde_json's text without the position, which would count from the field's own beginning.
fn cause(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(cause, _)| cause.to_owned())
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = HashMap::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    if fields.len() == MAX_FIELDS {
                        return Err(A::Error::custom(format!("more than {MAX_FIELDS} fields")));
                    }
                    if fields.contains_key(&name) {
                        let shown: String = name.chars().take(64).collect();
                        return Err(A::Error::custom(format!("the field `{shown}` stands in it twice")));
                    }
                    fields.insert(name, value);
                }
                Ok(Fields { left: fields, asked: Vec::new() })
            }
        }

        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(error: &ApiError) -> (String, String) {
        let body = error.body();
        let text = |key: &str| body["error"][key].as_str().unwrap_or_default().to_owned();
        (text("message"), text("param"))
    }

    #[test]
    fn a_wrong_type_is_refused_by_the_fields_name() {
        let mut fields = Fields::parse(br#"{"n": "three"}"#).unwrap();
        let error = fields.take::<u32>("n").unwrap_err();
        assert_eq!(message(&error), (r#"n: invalid type: string "three", expected u32"#.into(), "n".into()));
    }

    #[test]
    fn a_field_that_stands_twice_is_refused() {
        for body in [r#"{"n": 1, "n": 2}"#, r#"{"n": 1, "\u006e": 1}"#] {
            let error = Fields::parse(body.as_bytes()).unwrap_err();
            assert!(message(&error).0.contains("`n` stands in it twice"), "{body}");
        }
    }

    #[test]
    fn null_is_as_good_as_absent() {
        let mut fields = Fields::parse(br#"{"n": null}"#).unwrap();
        assert_eq!(fields.take::<u32>("n").unwrap(), None);
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for body in [&b""[..], b"[]", b"{", b"{} {}", b"\xff", b"\"x\"", b"{\"a\":1,}"] {
            assert!(Fields::parse(body).is_err(), "{body:?}");
        }
    }

    #[test]
    fn neither_depth_nor_number_of_fields_can_hurt() {
        let deep = format!("{{\"a\": {}{}}}", "[".repeat(1_000_000), "]".repeat(1_000_000));
        if let Ok(fields) = Fields::parse(deep.as_bytes()) {
            assert!(fields.finish().is_err());
        }
        let many: Vec<String> = (0..=MAX_FIELDS).map(|i| format!("\"f{i}\": 0")).collect();
        assert!(Fields::parse(format!("{{{}}}", many.join(",")).as_bytes()).is_err());
    }

    #[test]
    fn a_field_that_nobody_takes_is_refused_by_name() {
        let fields = Fields::parse(br#"{"length_penalty": 2}"#).unwrap();
        assert_eq!(message(&fields.finish().unwrap_err()).1, "length_penalty");
        let mut fields = Fields::parse(br#"{"temprature": 2}"#).unwrap();
        fields.take::<f32>("temperature").unwrap();
        let (text, param) = message(&fields.finish().unwrap_err());
        assert_eq!(
            (text.as_str(), param.as_str()),
            ("unknown field `temprature`; did you mean `temperature`?", "temprature")
        );
        let fields = Fields::parse(br#"{"length_penalty": 1, "user": "me", "tools": null}"#).unwrap();
        assert!(fields.finish().is_ok());
    }
}
