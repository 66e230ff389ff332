//! Numbers that must lie in a range.

use super::fields::Fields;
use crate::http::ApiError;

/// Takes a number out of a request, or `default` where it says nothing. `range` says in words what `allowed` decides.
///
/// # Errors
/// 400 with the field's name.
pub(super) fn number(
    fields: &mut Fields<'_>,
    name: &'static str,
    default: f32,
    range: &str,
    allowed: impl Fn(f32) -> bool,
) -> Result<f32, ApiError> {
    let value = fields.take(name)?.unwrap_or(default);
    if value.is_finite() && allowed(value) {
        return Ok(value);
    }
    Err(ApiError::invalid(name, format!("{name} must be {range}, got {value}.")))
}

/// Holds `value`, if there is one, against a range of whole numbers.
///
/// # Errors
/// 400 with the field's name.
pub(super) fn whole(name: &'static str, value: u32, min: u32, max: u32) -> Result<u32, ApiError> {
    if (min..=max).contains(&value) {
        return Ok(value);
    }
    Err(ApiError::invalid(name, format!("{name} must be between {min} and {max}, got {value}.")))
}
