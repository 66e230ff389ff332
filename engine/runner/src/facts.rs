//! What can be said of a model from its headers.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::config::ModelConfig;
use crate::formats::Checkpoint;
use crate::weights::WeightType;

/// Facts for `regatta-engine inspect` and for planning; read from headers only.
#[derive(Clone, Debug, Serialize)]
pub struct ModelFacts {
    /// `gguf` or `huggingface`.
    pub format: &'static str,
    /// Sizes and constants.
    #[serde(flatten)]
    pub config: ModelConfig,
    /// Elements of all tensors.
    pub parameters: u64,
    /// Bytes of the tensors, by type.
    pub weight_bytes: BTreeMap<WeightType, u64>,
    /// Bytes of the model's files.
    pub file_bytes: u64,
    /// Bytes of KV cache for one token in F16: `2 x layers x kv_heads x head_dim x 2`.
    pub kv_bytes_per_token: u64,
    /// Identity: SHA-256 of the headers, in hex.
    pub digest: String,
}

impl ModelFacts {
    /// Collects the facts of an opened checkpoint.
    pub fn of(checkpoint: &Checkpoint) -> Self {
        let mut weight_bytes = BTreeMap::new();
        let mut parameters = 0;
        for tensor in checkpoint.tensors().values() {
            *weight_bytes.entry(tensor.ty).or_default() += tensor.range.len() as u64;
            parameters += (tensor.range.len() / tensor.ty.block_bytes() * tensor.ty.block_len()) as u64;
        }
        let config = checkpoint.config().clone();
        Self {
            format: checkpoint.format(),
            parameters,
            weight_bytes,
            file_bytes: checkpoint.file_bytes(),
            kv_bytes_per_token: config.kv_bytes_per_token(2),
            digest: checkpoint.digest(),
            config,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::backend::RopePairs;
    use crate::config::{Architecture, ModelConfig, Rope, RopeScaling};

    #[test]
    fn llama_2_70b_takes_1_34_gigabytes_of_kv_for_4096_tokens() {
        let config = ModelConfig {
            architecture: Architecture::Llama,
            num_layers: 80,
            num_heads: 64,
            num_kv_heads: 8,
            head_dim: 128,
            hidden_size: 8192,
            intermediate_size: 28_672,
            vocab_size: 32_000,
            context_length: 4096,
            rms_norm_eps: 1e-5,
            tie_word_embeddings: false,
            rope: Rope { theta: 10_000.0, scaling: RopeScaling::None, pairs: RopePairs::Halves },
            windows: Vec::new(),
        };
        config.check().unwrap();
        assert_eq!(config.kv_bytes_per_token(2) * 4096, 1_342_177_280);
    }
}
