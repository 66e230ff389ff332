//! Llama (Touvron et al., 2023), and Mistral, which has the same layers.
//!
//! ```text
//! hidden = embed_tokens[ids]
//! for each layer:
//!     hidden += o_proj(attention(rope(qkv_proj(input_layernorm(hidden)))))
//!     hidden += down_proj(silu(gate) * up), [gate | up] = gate_up_proj(post_attention_layernorm(hidden))
//! logits = lm_head(norm(hidden))
//! ```

use super::ModelError;
use super::rope::frequencies;
use super::tensors::Tensors;
use crate::backend::{Backend, BackendError, Batch};
use crate::config::ModelConfig;
use crate::formats::{Checkpoint, FormatError};
use crate::kv_layout::KvLayout;

/// Most rows whose logits are computed at once: a row of logits is as long as the vocabulary.
const MAX_LOGIT_ROWS: usize = 64;

/// The weights, packed for a backend.
pub struct Llama<B: Backend> {
    config: ModelConfig,
    kv_layout: KvLayout,
    frequencies: Vec<f32>,
    embed_tokens: B::Matrix,
    layers: Vec<DecoderLayer<B>>,
    norm: B::Buffer,
    /// Absent where it is the embedding.
    lm_head: Option<B::Matrix>,
}

struct DecoderLayer<B: Backend> {
    input_layernorm: B::Buffer,
    /// `[q_proj; k_proj; v_proj]`.
    qkv_proj: B::Matrix,
    o_proj: B::Matrix,
    post_attention_layernorm: B::Buffer,
    /// `[gate_proj; up_proj]`.
    gate_up_proj: B::Matrix,
    down_proj: B::Matrix,
}

/// Buffers of a forward pass, allocated once for the largest step.
pub struct Activations<B: Backend> {
    /// The residual stream, `[tokens, hidden_size]`.
    hidden: B::Buffer,
    normed: B::Buffer,
    /// What a sub-layer adds, `[tokens, hidden_size]`.
    delta: B::Buffer,
    /// `[tokens, (num_heads + 2 num_kv_heads) * head_dim]`.
    qkv: B::Buffer,
    /// `[tokens, num_heads * head_dim]`.
    attention: B::Buffer,
    kept_attention: B::Buffer,
    /// `[tokens, 2 intermediate_size]`.
    gate_up: B::Buffer,
    /// `[tokens, intermediate_size]`.
    activated: B::Buffer,
    /// `[MAX_LOGIT_ROWS, hidden_size]`.
    last_hidden: B::Buffer,
    last_normed: B::Buffer,
    /// `[MAX_LOGIT_ROWS, vocab_size]`.
    logits: B::Buffer,
}

impl<B: Backend> Llama<B> {
    /// Packs the weights of a checkpoint.
    ///
    /// # Errors
    /// A weight is missing, has another shape, or cannot be taken by the backend.
    pub fn load(checkpoint: &Checkpoint, backend: &B) -> Result<Self, ModelError> {
        let config = checkpoint.config().clone();
        let (vocab, hidden) = (config.vocab_size, config.hidden_size);
        let mut tensors = Tensors::new(checkpoint, backend);
        let embed_tokens = tensors.matrix("model.embed_tokens.weight", vocab, hidden)?;
        let layers = (0..config.num_layers)
            .map(|layer| DecoderLayer::load(&mut tensors, &config, layer))
            .collect::<Result<_, _>>()?;
        let norm = tensors.vector("model.norm.weight", hidden)?;
        let lm_head = if config.tie_word_embeddings {
            tensors.ignore("lm_head.weight");
            None
        } else {
            Some(tensors.matrix("lm_head.weight", vocab, hidden)?)
        };
        tensors.finish()?;
        let frequencies = frequencies(&config.rope, config.head_dim);
        let malformed = |reason| FormatError::Malformed { path: checkpoint.path().to_owned(), reason };
        let kv_layout = config.kv_layout().map_err(malformed)?;
        Ok(Self { config, kv_layout, frequencies, embed_tokens, layers, norm, lm_head })
    }

    /// The model's sizes.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Where its layers keep keys and values.
    pub fn kv_layout(&self) -> &KvLayout {
        &self.kv_layout
    }

    /// Buffers for steps of up to `max_tokens` tokens.
    ///
    /// # Errors
    /// Memory could not be had.
    pub fn activations(&self, backend: &B, max_tokens: usize) -> Result<Activations<B>, BackendError> {
        let config = &self.config;
        let heads = config.num_heads * config.head_dim;
        let kv_heads = config.num_kv_heads * config.head_dim;
        let logit_rows = max_tokens.min(MAX_LOGIT_ROWS);
        let tokens = |width| backend.alloc(max_tokens, width);
        Ok(Activations {
            hidden: tokens(config.hidden_size)?,
            normed: tokens(config.hidden_size)?,
            delta: tokens(config.hidden_size)?,
            qkv: tokens(heads + 2 * kv_heads)?,
            attention: tokens(heads)?,
            kept_attention: tokens(heads)?,
            gate_up: tokens(2 * config.intermediate_size)?,
            activated: tokens(config.intermediate_size)?,
            last_hidden: backend.alloc(logit_rows, config.hidden_size)?,
            last_normed: backend.alloc(logit_rows, config.hidden_size)?,
            logits: backend.alloc(logit_rows, config.vocab_size)?,
        })
    }

    /// Runs the layers over a batch, writes its keys and values to the cache, and leaves in `a` the last layer's
    /// output for the batch rows `wanted`, in that order.
    pub fn forward(
        &self,
        backend: &B,
        ids: &[u32],
        batch: &Batch,
        wanted: &[usize],
        cache: &mut B::KvCache,
        a: &mut Activations<B>,
    ) {
        a.set_rows(backend, ids.len());
        backend.embed_into(&self.embed_tokens, ids, &mut a.hidden);
        let last = self.layers.len() - 1;
        for (index, layer) in self.layers.iter().enumerate() {
            self.attend(backend, index, batch, cache, a);
            if index == last {
                // Nothing reads the other rows from here on.
                a.keep(backend, wanted);
                if wanted.is_empty() {
                    return;
                }
            }
            backend.linear_into(&a.attention, &layer.o_proj, &mut a.delta);
            backend.add_assign(&mut a.hidden, &a.delta);
            let eps = self.config.rms_norm_eps;
            backend.rms_norm_into(&a.hidden, &layer.post_attention_layernorm, eps, &mut a.normed);
            backend.linear_into(&a.normed, &layer.gate_up_proj, &mut a.gate_up);
            backend.silu_mul_into(&a.gate_up, &mut a.activated);
            backend.linear_into(&a.activated, &layer.down_proj, &mut a.delta);
            backend.add_assign(&mut a.hidden, &a.delta);
        }
    }

    fn attend(
        &self,
        backend: &B,
        index: usize,
        batch: &Batch,
        cache: &mut B::KvCache,
        a: &mut Activations<B>,
    ) {
        let (config, layer, kv_layer) = (&self.config, &self.layers[index], self.kv_layout.layers[index]);
        let scale = 1.0 / (config.head_dim as f32).sqrt();
        backend.rms_norm_into(&a.hidden, &layer.input_layernorm, config.rms_norm_eps, &mut a.normed);
        backend.linear_into(&a.normed, &layer.qkv_proj, &mut a.qkv);
        backend.rope_and_store(
            &mut a.qkv,
            config.num_heads,
            &self.frequencies,
            config.rope.pairs,
            batch,
            cache,
            kv_layer,
        );
        backend.attention_into(&a.qkv, config.num_heads, scale, batch, cache, kv_layer, &mut a.attention);
    }

    /// Calls `each(i, logits)` for `i` in `0..num_wanted`, the rows that the last [`forward`](Self::forward) kept.
    pub fn logits(
        &self,
        backend: &B,
        num_wanted: usize,
        a: &mut Activations<B>,
        mut each: impl FnMut(usize, &[f32]),
    ) {
        let rows: Vec<usize> = (0..num_wanted).collect();
        let lm_head = self.lm_head.as_ref().unwrap_or(&self.embed_tokens);
        for rows in rows.chunks(MAX_LOGIT_ROWS) {
            for buffer in [&mut a.last_hidden, &mut a.last_normed, &mut a.logits] {
                backend.set_rows(buffer, rows.len());
            }
            backend.gather_rows_into(&a.hidden, rows, &mut a.last_hidden);
            backend.rms_norm_into(&a.last_hidden, &self.norm, self.config.rms_norm_eps, &mut a.last_normed);
            backend.linear_into(&a.last_normed, lm_head, &mut a.logits);
            for (row, &index) in rows.iter().enumerate() {
                each(index, &backend.read_row(&a.logits, row));
            }
        }
    }
}

impl<B: Backend> DecoderLayer<B> {
    fn load(tensors: &mut Tensors<'_, B>, config: &ModelConfig, layer: usize) -> Result<Self, ModelError> {
        let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
        let (hidden, intermediate) = (config.hidden_size, config.intermediate_size);
        let (heads, kv_heads) = (config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim);
        let qkv = [
            (name("self_attn.q_proj"), heads),
            (name("self_attn.k_proj"), kv_heads),
            (name("self_attn.v_proj"), kv_heads),
        ];
        let gate_up = [(name("mlp.gate_proj"), intermediate), (name("mlp.up_proj"), intermediate)];
        Ok(Self {
            input_layernorm: tensors.vector(&name("input_layernorm"), hidden)?,
            qkv_proj: tensors.stacked(qkv, hidden)?,
            o_proj: tensors.matrix(&name("self_attn.o_proj"), hidden, heads)?,
            post_attention_layernorm: tensors.vector(&name("post_attention_layernorm"), hidden)?,
            gate_up_proj: tensors.stacked(gate_up, hidden)?,
            down_proj: tensors.matrix(&name("mlp.down_proj"), hidden, intermediate)?,
        })
    }
}

impl<B: Backend> Activations<B> {
    fn set_rows(&mut self, backend: &B, rows: usize) {
        let Self { hidden, normed, delta, qkv, attention, gate_up, activated, .. } = self;
        for buffer in [hidden, normed, delta, qkv, attention, gate_up, activated] {
            backend.set_rows(buffer, rows);
        }
    }

    /// Keeps the rows `wanted` of the residual stream and of the attention's output.
    fn keep(&mut self, backend: &B, wanted: &[usize]) {
        backend.set_rows(&mut self.delta, wanted.len());
        backend.set_rows(&mut self.kept_attention, wanted.len());
        backend.gather_rows_into(&self.hidden, wanted, &mut self.delta);
        backend.gather_rows_into(&self.attention, wanted, &mut self.kept_attention);
        std::mem::swap(&mut self.hidden, &mut self.delta);
        std::mem::swap(&mut self.attention, &mut self.kept_attention);
        self.set_rows(backend, wanted.len());
    }
}
