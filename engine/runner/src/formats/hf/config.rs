//! The model's sizes from `config.json`.

use serde::Deserialize;

use crate::backend::RopePairs;
use crate::config::{Architecture, MAX_LAYERS, ModelConfig, Rope, RopeScaling};
use crate::formats::FormatError;

use super::HfFolder;

/// The fields of `config.json` that matter to the llama family; defaults are those of `transformers`.
#[derive(Deserialize)]
struct Published {
    #[serde(default)]
    architectures: Vec<String>,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    vocab_size: usize,
    #[serde(default = "default_context")]
    max_position_embeddings: usize,
    #[serde(default = "default_eps")]
    rms_norm_eps: f32,
    #[serde(default)]
    tie_word_embeddings: bool,
    rope_theta: Option<f32>,
    rope_scaling: Option<PublishedRope>,
    rope_parameters: Option<PublishedRope>,
    #[serde(default = "default_window")]
    sliding_window: Option<u32>,
    layer_types: Option<Vec<String>>,
    hidden_act: Option<String>,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    partial_rotary_factor: Option<f32>,
    quantization_config: Option<serde_json::Value>,
}

fn default_context() -> usize {
    2048
}

fn default_eps() -> f32 {
    1e-6
}

/// Mistral's, where the key is absent; `null` means no window.
fn default_window() -> Option<u32> {
    Some(4096)
}

/// `rope_scaling`, or `rope_parameters` of newer files.
#[derive(Deserialize)]
struct PublishedRope {
    rope_type: Option<String>,
    /// The older name; many files carry both.
    #[serde(rename = "type")]
    older_type: Option<String>,
    rope_theta: Option<f32>,
    factor: Option<f32>,
    low_freq_factor: Option<f32>,
    high_freq_factor: Option<f32>,
    original_max_position_embeddings: Option<f32>,
}

/// Reads and checks the sizes.
pub(super) fn read(folder: &HfFolder, text: &[u8]) -> Result<ModelConfig, FormatError> {
    let path = folder.path().join("config.json");
    let malformed = |reason: String| FormatError::Malformed { path: path.clone(), reason };
    let published: Published = serde_json::from_slice(text).map_err(|error| malformed(error.to_string()))?;
    let unsupported = |(what, supported): (String, String)| FormatError::Unsupported {
        path: path.clone(),
        what,
        supported,
    };
    let architecture = architecture(&published.architectures).map_err(unsupported)?;
    published.refuse_variants().map_err(unsupported)?;
    let config = published.config(architecture).map_err(unsupported)?;
    config.check().map_err(malformed)?;
    Ok(config)
}

/// What is not supported, and what is.
type Refusal = (String, String);

fn architecture(names: &[String]) -> Result<Architecture, Refusal> {
    match names.first().map(String::as_str) {
        Some("LlamaForCausalLM") => Ok(Architecture::Llama),
        Some("MistralForCausalLM") => Ok(Architecture::Mistral),
        other => Err((
            format!("the architecture `{}`", other.unwrap_or("(none given)")),
            "supported: LlamaForCausalLM, MistralForCausalLM".into(),
        )),
    }
}

impl Published {
    fn refuse_variants(&self) -> Result<(), Refusal> {
        let refuse = |what: String, supported: &str| Err((what, supported.to_owned()));
        if self.attention_bias || self.mlp_bias {
            return refuse("a bias in attention or mlp".into(), "use a model without these biases");
        }
        if let Some(act) = self.hidden_act.as_ref().filter(|act| *act != "silu") {
            return refuse(format!("the activation `{act}`"), "supported: silu");
        }
        if let Some(part) = self.partial_rotary_factor.filter(|&part| part != 1.0) {
            return refuse(format!("a partial_rotary_factor of {part}"), "heads must be rotated whole");
        }
        if let Some(quantization) = &self.quantization_config {
            let method =
                quantization.get("quant_method").and_then(|method| method.as_str()).unwrap_or("unknown");
            return refuse(
                format!("the quantisation `{method}` of safetensors"),
                "use the model in F32, F16 or BF16, or a quantised GGUF file",
            );
        }
        Ok(())
    }

    fn config(&self, architecture: Architecture) -> Result<ModelConfig, Refusal> {
        let head_dim = self.head_dim.unwrap_or(self.hidden_size / self.num_attention_heads.max(1));
        Ok(ModelConfig {
            architecture,
            num_layers: self.num_hidden_layers,
            num_heads: self.num_attention_heads,
            num_kv_heads: self.num_key_value_heads.unwrap_or(self.num_attention_heads),
            head_dim,
            hidden_size: self.hidden_size,
            intermediate_size: self.intermediate_size,
            vocab_size: self.vocab_size,
            context_length: self.max_position_embeddings,
            rms_norm_eps: self.rms_norm_eps,
            tie_word_embeddings: self.tie_word_embeddings,
            rope: self.rope()?,
            windows: self.windows(architecture)?,
        })
    }

    /// The window of each layer; none at all where no layer has one. Without `layer_types`, all layers of Mistral have
    /// the window, and none of Llama, as in `transformers`.
    fn windows(&self, architecture: Architecture) -> Result<Vec<Option<u32>>, Refusal> {
        // Within its window, windowed attention is full attention.
        let bounds = |window: &u32| (*window as usize) < self.max_position_embeddings;
        let window = self.sliding_window.filter(bounds);
        let windows: Vec<Option<u32>> = match &self.layer_types {
            Some(types) if types.len() != self.num_hidden_layers => {
                return Err((
                    format!("{} layer_types for {} layers", types.len(), self.num_hidden_layers),
                    "layer_types names each layer's kind once".to_owned(),
                ));
            }
            Some(types) => types
                .iter()
                .map(|kind| match kind.as_str() {
                    "full_attention" => Ok(None),
                    "sliding_attention" if self.sliding_window.is_none() => Err((
                        "a layer of the type `sliding_attention` and no sliding_window".to_owned(),
                        "sliding_window says how many positions such a layer sees".to_owned(),
                    )),
                    "sliding_attention" => Ok(window),
                    other => Err((
                        format!("a layer of the type `{other}`"),
                        "supported: full_attention, sliding_attention".to_owned(),
                    )),
                })
                .collect::<Result<_, _>>()?,
            None if architecture == Architecture::Mistral => {
                std::iter::repeat_n(window, self.num_hidden_layers.min(MAX_LAYERS)).collect()
            }
            None => Vec::new(),
        };
        Ok(if windows.iter().all(Option::is_none) { Vec::new() } else { windows })
    }

    fn rope(&self) -> Result<Rope, Refusal> {
        let parameters = self.rope_parameters.as_ref().or(self.rope_scaling.as_ref());
        let theta = self.rope_theta.or_else(|| parameters?.rope_theta).unwrap_or(10_000.0);
        let scaling = parameters.map_or(Ok(RopeScaling::None), PublishedRope::scaling)?;
        Ok(Rope { theta, scaling, pairs: RopePairs::Halves })
    }
}

impl PublishedRope {
    /// Absent numbers become NaN, which the check of the whole refuses by name.
    fn scaling(&self) -> Result<RopeScaling, Refusal> {
        let or_nan = |value: Option<f32>| value.unwrap_or(f32::NAN);
        match self.rope_type.as_ref().or(self.older_type.as_ref()).map(String::as_str) {
            None | Some("default") => Ok(RopeScaling::None),
            Some("linear") => Ok(RopeScaling::Linear { factor: or_nan(self.factor) }),
            Some("llama3") => Ok(RopeScaling::Llama3 {
                factor: or_nan(self.factor),
                low_freq_factor: or_nan(self.low_freq_factor),
                high_freq_factor: or_nan(self.high_freq_factor),
                original_max_position_embeddings: or_nan(self.original_max_position_embeddings),
            }),
            Some(other) => {
                Err((format!("rope scaling `{other}`"), "supported: default, linear, llama3".into()))
            }
        }
    }
}
