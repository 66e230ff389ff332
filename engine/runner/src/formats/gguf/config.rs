//! The model's sizes from GGUF metadata.

use super::{Gguf, TensorInfo};
use crate::backend::RopePairs;
use crate::config::{Architecture, MAX_LAYERS, ModelConfig, Rope, RopeScaling};
use crate::dequantize::dequantize;
use crate::formats::FormatError;
use crate::weights::WeightView;

/// Reads and checks the sizes.
pub(super) fn read(gguf: &Gguf) -> Result<ModelConfig, FormatError> {
    let keys = Keys { gguf, prefix: architecture(gguf)? };
    keys.refuse_mixture_of_experts()?;
    let num_heads = keys.size("attention.head_count")?;
    let hidden_size = keys.size("embedding_length")?;
    let head_dim = match keys.optional("attention.key_length") {
        Some(head_dim) => head_dim,
        None => hidden_size / num_heads.max(1),
    };
    let rotated = [keys.optional("attention.value_length"), keys.optional("rope.dimension_count")];
    if let Some(other) = rotated.into_iter().flatten().find(|&other| other != head_dim) {
        return Err(keys.unsupported(
            format!("a head of {head_dim} elements of which {other} are values or rotated"),
            "heads must be rotated whole and have keys as long as values",
        ));
    }
    let (num_layers, context_length) = (keys.size("block_count")?, keys.size("context_length")?);
    let config = ModelConfig {
        architecture: Architecture::Llama,
        num_layers,
        num_heads,
        num_kv_heads: keys.optional("attention.head_count_kv").unwrap_or(num_heads),
        head_dim,
        hidden_size,
        intermediate_size: keys.size("feed_forward_length")?,
        vocab_size: keys.tensor("token_embd.weight").map_or(0, |embedding| embedding.shape[0]),
        context_length,
        rms_norm_eps: keys.float("attention.layer_norm_rms_epsilon").ok_or_else(|| {
            gguf.file.malformed("the metadata key `llama.attention.layer_norm_rms_epsilon` is missing")
        })?,
        tie_word_embeddings: keys.tensor("output.weight").is_none(),
        rope: keys.rope()?,
        windows: keys.windows(num_layers, context_length)?,
    };
    config.check().map_err(|reason| gguf.file.malformed(reason))?;
    Ok(config)
}

fn architecture(gguf: &Gguf) -> Result<&'static str, FormatError> {
    match gguf.metadata.get_str("general.architecture") {
        Some("llama") => Ok("llama"),
        Some(other) => Err(FormatError::Unsupported {
            path: gguf.file.path().to_owned(),
            what: format!("the architecture `{other}`"),
            supported: "supported in GGUF: llama (also Mistral)".into(),
        }),
        None => Err(gguf.file.malformed("the metadata key `general.architecture` (a string) is missing")),
    }
}

/// Metadata under the architecture's prefix.
struct Keys<'a> {
    gguf: &'a Gguf,
    prefix: &'static str,
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    fn optional(&self, name: &str) -> Option<usize> {
        self.gguf.metadata.get_u32(&self.key(name)).map(|value| value as usize)
    }

    fn size(&self, name: &str) -> Result<usize, FormatError> {
        let missing = || format!("the metadata key `{}` (an integer) is missing", self.key(name));
        self.optional(name).ok_or_else(|| self.gguf.file.malformed(missing()))
    }

    fn float(&self, name: &str) -> Option<f32> {
        self.gguf.metadata.get_f32(&self.key(name))
    }

    fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.gguf.tensors.iter().find(|tensor| tensor.name == name)
    }

    fn unsupported(&self, what: String, supported: &str) -> FormatError {
        let path = self.gguf.file.path().to_owned();
        FormatError::Unsupported { path, what, supported: supported.into() }
    }

    fn refuse_mixture_of_experts(&self) -> Result<(), FormatError> {
        match self.optional("expert_count") {
            None | Some(0) => Ok(()),
            Some(experts) => Err(self.unsupported(
                format!("a mixture of {experts} experts"),
                "use a dense model of the llama family",
            )),
        }
    }

    /// The window of each layer, as with Mistral's `sliding_window` in a Hugging Face folder: all have it, and where it
    /// is no shorter than the context, none.
    fn windows(&self, num_layers: usize, context_length: usize) -> Result<Vec<Option<u32>>, FormatError> {
        let (name, pattern) = ("attention.sliding_window", "attention.sliding_window_pattern");
        if self.gguf.metadata.contains(&self.key(pattern)) {
            return Err(self.unsupported(
                format!("a window of attention in some layers (`{}`)", self.key(pattern)),
                "supported in GGUF: windows in all layers, or in none",
            ));
        }
        match self.gguf.metadata.get_u32(&self.key(name)) {
            None if self.gguf.metadata.contains(&self.key(name)) => Err(self.unsupported(
                format!("a `{}` that is no integer", self.key(name)),
                "supported in GGUF: one window for all layers",
            )),
            // As llama.cpp writes it for models without one.
            None | Some(0) => Ok(Vec::new()),
            Some(window) if window as usize >= context_length => Ok(Vec::new()),
            Some(window) => Ok(vec![Some(window); num_layers.min(MAX_LAYERS)]),
        }
    }

    fn rope(&self) -> Result<Rope, FormatError> {
        let scaling = match self.gguf.metadata.get_str(&self.key("rope.scaling.type")) {
            None | Some("none") => RopeScaling::None,
            Some("linear") => {
                RopeScaling::Linear { factor: self.float("rope.scaling.factor").unwrap_or(f32::NAN) }
            }
            Some(other) => {
                return Err(self.unsupported(
                    format!("rope scaling `{other}`"),
                    "supported in GGUF: none, linear, and the divisors of rope_freqs.weight",
                ));
            }
        };
        let scaling = match self.tensor("rope_freqs.weight") {
            Some(tensor) if scaling == RopeScaling::None => {
                let view = WeightView {
                    name: &tensor.name,
                    ty: tensor.ty,
                    rows: 1,
                    columns: tensor.shape.iter().product(),
                    data: &self.gguf.file.bytes()[tensor.range.clone()],
                };
                if view.columns > 1024 {
                    return Err(self.gguf.file.malformed("tensor `rope_freqs.weight` is longer than a head"));
                }
                RopeScaling::Divisors { divisors: dequantize(&view) }
            }
            _ => scaling,
        };
        let theta = self.float("rope.freq_base").unwrap_or(10_000.0);
        Ok(Rope { theta, scaling, pairs: RopePairs::Adjacent })
    }
}
