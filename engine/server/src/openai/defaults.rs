//! Sampling defaults that a model publishes in its `generation_config.json`.

use std::{io, path::Path};

use serde::Deserialize;

/// Values that hold where a request says nothing. A GGUF file has none.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct GenerationDefaults {
    pub(super) temperature: Option<f32>,
    pub(super) top_p: Option<f32>,
    pub(super) top_k: Option<i64>,
    pub(super) min_p: Option<f32>,
    pub(super) repetition_penalty: Option<f32>,
    /// Most tokens to generate, for requests that set no limit of their own.
    pub(super) max_new_tokens: Option<u32>,
}

/// Why the defaults cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}; correct or remove the file")]
pub struct DefaultsError {
    path: String,
    reason: String,
}

impl GenerationDefaults {
    /// Reads them from the model's folder, if there is one with such a file.
    ///
    /// # Errors
    /// When the file cannot be read or its values are out of range.
    pub fn load(model: &Path) -> Result<Self, DefaultsError> {
        let path = model.join("generation_config.json");
        let error = |reason: String| DefaultsError { path: path.display().to_string(), reason };
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(missing)
                if matches!(missing.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
            {
                return Ok(Self::default());
            }
            Err(cause) => return Err(error(cause.to_string())),
        };
        let defaults: Self = serde_json::from_slice(&text).map_err(|cause| error(cause.to_string()))?;
        defaults.check().map_err(error)?;
        Ok(defaults)
    }

    fn check(&self) -> Result<(), String> {
        if self.temperature.is_some_and(|t| !(t >= 0.0 && t.is_finite())) {
            return Err("temperature must not be negative".into());
        }
        if self.top_p.is_some_and(|p| !(p > 0.0 && p <= 1.0)) {
            return Err("top_p must be in (0, 1]".into());
        }
        if self.top_k.is_some_and(|k| k < -1) {
            return Err("top_k must be at least -1".into());
        }
        if self.min_p.is_some_and(|p| !(0.0..=1.0).contains(&p)) {
            return Err("min_p must be in [0, 1]".into());
        }
        if self.repetition_penalty.is_some_and(|penalty| !(penalty > 0.0 && penalty.is_finite())) {
            return Err("repetition_penalty must be greater than zero".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_models_own_defaults_are_read() {
        let folder = tempfile::tempdir().unwrap();
        assert!(GenerationDefaults::load(folder.path()).unwrap().temperature.is_none());
        let file = folder.path().join("generation_config.json");
        std::fs::write(
            &file,
            r#"{"temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.1, "eos_token_id": [1, 2], "do_sample": true}"#,
        )
        .unwrap();
        let defaults = GenerationDefaults::load(folder.path()).unwrap();
        assert_eq!((defaults.temperature, defaults.top_p, defaults.top_k), (Some(0.6), Some(0.9), None));
        assert_eq!((defaults.repetition_penalty, defaults.min_p), (Some(1.1), None));
        for wrong in ["temperature\": -1", "repetition_penalty\": 0", "min_p\": 2", "top_k\": -2"] {
            std::fs::write(&file, format!("{{\"{wrong}}}")).unwrap();
            let error = GenerationDefaults::load(folder.path()).unwrap_err().to_string();
            assert!(error.contains(wrong.split('"').next().unwrap()), "{error}");
        }
        assert!(GenerationDefaults::load(&file).unwrap().top_p.is_none());
    }
}
