//! What a decoder is made of, whatever format its file has.

use serde::Serialize;

use crate::backend::RopePairs;
use crate::kv_layout::KvLayout;

/// Most layers of a model.
pub(crate) const MAX_LAYERS: usize = 1024;

/// A family of models that [`crate::model`] can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// Llama 1 to 3 and what shares its shape.
    Llama,
    /// Mistral: Llama's layers, which may attend within a window.
    Mistral,
}

/// Sizes and constants of a model, each within [`ModelConfig::check`]'s bounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelConfig {
    /// The family.
    pub architecture: Architecture,
    /// Decoder layers.
    pub num_layers: usize,
    /// Query heads.
    pub num_heads: usize,
    /// Key/value heads; divides `num_heads`.
    pub num_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width inside the feed-forward network.
    pub intermediate_size: usize,
    /// Tokens in the vocabulary.
    pub vocab_size: usize,
    /// Positions that the model was made for.
    pub context_length: usize,
    /// Added to the mean square in RMS norms.
    pub rms_norm_eps: f32,
    /// Whether the output matrix is the embedding.
    pub tie_word_embeddings: bool,
    /// Rotary embedding.
    pub rope: Rope,
    /// For each layer, the positions that a token attends to, its own included; empty: all layers attend fully.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Option<u32>>,
}

/// Rotary embedding (Su et al., RoFormer, 2021).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f32,
    /// How the frequencies are stretched for long contexts.
    pub scaling: RopeScaling,
    /// Which elements form a pair, given by the weights' layout.
    #[serde(skip)]
    pub pairs: RopePairs,
}

/// A change of rotary frequencies for contexts longer than those of pre-training.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RopeScaling {
    /// None.
    None,
    /// All frequencies divided by `factor`.
    Linear {
        /// The divisor.
        factor: f32,
    },
    /// Llama 3's: low frequencies divided, high ones kept, those between blended.
    Llama3 {
        /// The divisor of low frequencies.
        factor: f32,
        /// Waves longer than the original context over this are low.
        low_freq_factor: f32,
        /// Waves shorter than the original context over this are high.
        high_freq_factor: f32,
        /// The original context, in tokens.
        original_max_position_embeddings: f32,
    },
    /// Each frequency has its own divisor, `head_dim / 2` of them (GGUF's `rope_freqs.weight`).
    Divisors {
        /// The divisors.
        divisors: Vec<f32>,
    },
}

impl ModelConfig {
    /// Bytes of KV cache that one token takes in all layers, with elements of `element_bytes`.
    pub fn kv_bytes_per_token(&self, element_bytes: usize) -> u64 {
        (2 * self.num_layers * self.num_kv_heads * self.head_dim * element_bytes) as u64
    }

    /// How its layers share the blocks of a KV pool.
    ///
    /// # Errors
    /// They are of too many kinds.
    pub fn kv_layout(&self) -> Result<KvLayout, String> {
        if self.windows.is_empty() {
            return KvLayout::new(&vec![None; self.num_layers]);
        }
        KvLayout::new(&self.windows)
    }

    /// Holds the sizes against bounds that keep later arithmetic and allocations small.
    ///
    /// # Errors
    /// Says which value is out of bounds.
    pub(crate) fn check(&self) -> Result<(), String> {
        let within = |name: &str, value: usize, max: usize| match value {
            1.. if value <= max => Ok(()),
            _ => Err(format!("{name} is {value}, it must be 1 to {max}")),
        };
        within("the number of layers", self.num_layers, MAX_LAYERS)?;
        within("the number of heads", self.num_heads, 1024)?;
        within("the number of key/value heads", self.num_kv_heads, self.num_heads)?;
        within("the head size", self.head_dim, 1024)?;
        within("the hidden size", self.hidden_size, 1 << 17)?;
        within("the intermediate size", self.intermediate_size, 1 << 20)?;
        within("the vocabulary size", self.vocab_size, 1 << 22)?;
        within("the context length", self.context_length, 1 << 27)?;
        if !self.num_heads.is_multiple_of(self.num_kv_heads) {
            return Err(format!(
                "{} heads cannot share {} key/value heads evenly",
                self.num_heads, self.num_kv_heads
            ));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(format!("the head size {} is odd, rotary embedding needs pairs", self.head_dim));
        }
        if !(self.rms_norm_eps > 0.0 && self.rms_norm_eps < 1.0) {
            return Err(format!("the norm's epsilon is {}, it must be between 0 and 1", self.rms_norm_eps));
        }
        if !self.windows.is_empty() && self.windows.len() != self.num_layers {
            return Err(format!(
                "{} layers are described, there are {}",
                self.windows.len(),
                self.num_layers
            ));
        }
        if self.windows.contains(&Some(0)) {
            return Err("the attention window is 0, it must be at least 1".into());
        }
        self.kv_layout()?;
        self.rope.check(self.head_dim)
    }
}

impl Rope {
    fn check(&self, head_dim: usize) -> Result<(), String> {
        let positive = |name: &str, value: f32| {
            if value.is_finite() && value > 0.0 {
                Ok(())
            } else {
                Err(format!("rope's {name} is {value}, it must be a positive number"))
            }
        };
        positive("theta", self.theta)?;
        match &self.scaling {
            RopeScaling::None => Ok(()),
            RopeScaling::Linear { factor } => positive("factor", *factor),
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_position_embeddings,
            } => {
                positive("factor", *factor)?;
                positive("low_freq_factor", *low_freq_factor)?;
                positive("original_max_position_embeddings", *original_max_position_embeddings)?;
                positive("high_freq_factor - low_freq_factor", high_freq_factor - low_freq_factor)
            }
            RopeScaling::Divisors { divisors } if divisors.len() == head_dim / 2 => {
                divisors.iter().try_for_each(|&divisor| positive("frequency divisor", divisor))
            }
            RopeScaling::Divisors { divisors } => Err(format!(
                "there are {} rope frequency divisors, {} are needed",
                divisors.len(),
                head_dim / 2
            )),
        }
    }
}
