//! `regatta-engine inspect`: what a model is, from its headers alone.

use std::path::Path;

use regatta_runner::facts::ModelFacts;
use regatta_runner::formats::Checkpoint;
use regatta_runner::load::LoadError;

use crate::load_error::ModelLoadError;

/// The facts of the model at `path` (a GGUF file or a Hugging Face folder) as indented JSON. Reads no weights.
///
/// # Errors
/// The files are missing, damaged or of a kind without support.
pub fn run(path: &Path) -> Result<String, ModelLoadError> {
    let facts = ModelFacts::of(&Checkpoint::open(path).map_err(LoadError::from)?);
    Ok(serde_json::to_string_pretty(&facts).expect("facts are plain data with string keys"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_a_model_are_json() {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runner/tests/data/tiny-llama.gguf");
        let facts: serde_json::Value = serde_json::from_str(&run(&model).unwrap()).unwrap();
        assert_eq!(facts["format"], "gguf");
        assert_eq!(facts["weight_bytes"]["F32"], facts["parameters"].as_u64().unwrap() * 4);
    }

    #[test]
    fn what_is_no_model_is_an_error_that_names_it() {
        let error = run(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap_err().to_string();
        assert!(error.contains("config.json"), "{error}");
        let error = run(Path::new("org/no-such-model")).unwrap_err().to_string();
        assert!(error.contains("models are not downloaded"), "{error}");
    }
}
