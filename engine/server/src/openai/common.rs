//! Checks that both endpoints make against the server's own settings.

use std::sync::Arc;

use super::{fields::Fields, usage::Streaming};
use crate::http::{ApiError, ServerState};

/// Takes `model` out of a request: one of the served names, or the first of them when it says nothing.
///
/// # Errors
/// 404 for another name.
pub(super) fn take_model_name(fields: &mut Fields<'_>, server: &ServerState) -> Result<String, ApiError> {
    let name = fields.take::<String>("model")?.unwrap_or_else(|| server.served_names[0].clone());
    if server.served_names.contains(&name) {
        Ok(name)
    } else {
        Err(ApiError::unknown_model(&name, &server.served_names))
    }
}

/// Longest `cache_salt`, in bytes.
const MAX_SALT: usize = 1024;

/// Takes `cache_salt` out of a request.
///
/// # Errors
/// 400 for an empty or very long one.
pub(super) fn take_cache_salt(fields: &mut Fields<'_>) -> Result<Option<Arc<str>>, ApiError> {
    let name = "cache_salt";
    let salt = fields.take::<String>(name)?;
    if salt.as_ref().is_some_and(|salt| salt.is_empty() || salt.len() > MAX_SALT) {
        let message = format!("`cache_salt` must be a non-empty string of at most {MAX_SALT} bytes.");
        return Err(ApiError::invalid(name, message));
    }
    Ok(salt.map(Arc::from))
}

/// Takes `prompt_logprobs` out of a request: alternatives per prompt token.
///
/// # Errors
/// 400 with the field's name.
pub(super) fn take_prompt_logprobs(
    fields: &mut Fields<'_>,
    server: &ServerState,
    streaming: Streaming,
) -> Result<Option<u32>, ApiError> {
    let name = "prompt_logprobs";
    let wanted = fields.take::<i64>(name)?;
    if wanted.is_some() && streaming.on {
        return Err(ApiError::invalid(name, "`prompt_logprobs` are not available when `stream=True`."));
    }
    wanted.map(|wanted| check_logprobs(name, wanted, server)).transpose()
}

/// Holds a number of alternatives per token against the limit.
///
/// # Errors
/// 400 with the field's name.
pub(super) fn check_logprobs(
    field: &'static str,
    wanted: i64,
    server: &ServerState,
) -> Result<u32, ApiError> {
    let max = server.max_logprobs;
    let checked = u32::try_from(wanted).ok().filter(|wanted| *wanted <= max);
    checked.ok_or_else(|| {
        ApiError::invalid(field, format!("{field} must be between 0 and {max}, got {wanted}."))
    })
}
