//! Why a model was not loaded, in the words of the command line.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use regatta_runner::backend::BackendError;
use regatta_runner::backend::cpu::CpuError;
use regatta_runner::formats::FormatError;
use regatta_runner::load::LoadError;

/// Wraps the runner's error, which speaks of its options, and speaks of flags.
#[derive(Debug)]
pub struct ModelLoadError(pub LoadError);

impl From<LoadError> for ModelLoadError {
    fn from(error: LoadError) -> Self {
        Self(error)
    }
}

// The text holds the runner's, so that there is no source to be told once more.
impl std::error::Error for ModelLoadError {}

impl fmt::Display for ModelLoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            LoadError::Option { option, value, remedy } => write!(f, "{} {value}: {remedy}", flag_of(option)),
            LoadError::KvTooSmall { held, max_model_len, needed_bytes, needed_blocks } => write!(
                f,
                "the KV cache holds {held} tokens, fewer than one sequence of {max_model_len}: lower --max-model-len \
                 to at most {held}, or give the KV cache {needed_blocks} blocks (--num-gpu-blocks-override) or \
                 {needed_bytes} bytes (--kv-cache-memory-bytes, or a larger --gpu-memory-utilization)"
            ),
            LoadError::KvTooLarge { num_blocks, bytes, available } => write!(
                f,
                "the KV cache of {num_blocks} blocks takes {bytes} bytes and {available} bytes of memory are left: \
                 lower --num-gpu-blocks-override or --kv-cache-memory-bytes, or leave them out"
            ),
            LoadError::Backend(error @ BackendError::OutOfMemory { .. }) => write!(
                f,
                "{error}; lower --num-gpu-blocks-override, --kv-cache-memory-bytes or --gpu-memory-utilization for \
                 the KV cache, --max-num-batched-tokens and --max-num-seqs for buffers, or give the process more memory"
            ),
            LoadError::Cpu(error @ CpuError::Threads { .. }) => write!(f, "{error} (--threads)"),
            LoadError::Format(error) => write!(f, "{error}{}", Hint(error)),
            other => write!(f, "{other}"),
        }
    }
}

/// The flag that sets an option of the runner.
fn flag_of(option: &str) -> String {
    match option {
        "kv_memory" => "--gpu-memory-utilization".to_owned(),
        "swap_bytes" => "--swap-space".to_owned(),
        other => format!("--{}", other.replace('_', "-")),
    }
}

/// What to say about a path that looks like a name on a hub of models; otherwise nothing.
pub(crate) struct Hint<'a>(pub(crate) &'a FormatError);

impl fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            FormatError::Io { path, cause } if cause.kind() == ErrorKind::NotFound && is_hub_name(path) => {
                write!(
                    f,
                    "; models are not downloaded: get its folder first (as with `hf download {0} --local-dir {0}`) or one \
                 GGUF file (`regatta-engine fetch URL --to FILE`), and give that path",
                    path.display()
                )
            }
            _ => Ok(()),
        }
    }
}

/// `org/name`, and nothing that a path has and such a name has not.
fn is_hub_name(path: &Path) -> bool {
    let Some((org, name)) = path.to_str().and_then(|path| path.split_once('/')) else { return false };
    let is_word = |word: &str| {
        let mut bytes = word.bytes();
        bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    is_word(org) && is_word(name) && !name.ends_with(".gguf") && !Path::new(org).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::serve_flags;

    #[test]
    fn every_option_of_the_runner_is_told_by_its_flag() {
        let options = [
            "block_size",
            "max_num_seqs",
            "max_num_batched_tokens",
            "max_model_len",
            "kv_memory",
            "swap_bytes",
            "threads",
        ];
        let flags = serve_flags();
        for option in options {
            let flag = flag_of(option);
            assert!(flags.iter().any(|known| known.name == flag), "{option}: {flag}");
            let remedy = "give 1 to 2".to_owned();
            let error = ModelLoadError(LoadError::Option { option, value: "0".to_owned(), remedy });
            assert_eq!(error.to_string(), format!("{flag} 0: give 1 to 2"));
        }
    }

    #[test]
    fn a_name_of_a_hub_is_not_a_path() {
        for name in ["meta-llama/Llama-3.2-1B", "org/name_2"] {
            assert!(is_hub_name(Path::new(name)), "{name}");
        }
        for path in [
            "/models/m",
            "./org/name",
            "a/b/c",
            "model.gguf",
            "org/model.gguf",
            "../m",
            "org/",
            "src/name",
            "~/m",
        ] {
            assert!(!is_hub_name(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn memory_that_is_not_there_is_told_with_the_flags_that_ask_for_less() {
        let error = BackendError::OutOfMemory { what: "the KV cache".to_owned(), bytes: 1 };
        let text = ModelLoadError(LoadError::Backend(error)).to_string();
        for flag in ["--kv-cache-memory-bytes", "--num-gpu-blocks-override", "--gpu-memory-utilization"] {
            assert!(text.contains(flag), "{text}");
        }
    }
}
