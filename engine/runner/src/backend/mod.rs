//! The operations a model is made of. The CPU backend is the default and the executable specification.
//!
//! Activations are F32, row-major `[tokens, width]`. Every op writes into a buffer that the caller gives and is
//! *row-independent*: a row of the result depends on nothing but that row's inputs, bit for bit, whatever else is in
//! the batch and however many threads run. Shapes are the caller's duty and are asserted.

pub mod cpu;

use crate::weights::WeightView;

/// A weight or setting that this backend cannot take.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The tensor's type or shape has no kernel here.
    #[error("tensor `{name}` cannot be used: {reason}")]
    Unsupported {
        /// The tensor.
        name: String,
        /// Why, and what would work.
        reason: String,
    },
    /// Memory could not be had.
    #[error("out of memory: {what} needs {bytes} bytes")]
    OutOfMemory {
        /// What it was for.
        what: String,
        /// How much.
        bytes: usize,
    },
}

/// Element type of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvType {
    /// IEEE half.
    F16,
    /// IEEE single.
    F32,
}

/// Shape of a KV cache: per layer of a group `[num_blocks, kv_heads, block_size, head_dim]` for keys, and the same for
/// values. Groups of layers share the blocks, each block being of one group at a time. The layout inside is the
/// backend's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// Layers in a group: as many as a block holds.
    pub layers: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Blocks in the pool.
    pub num_blocks: usize,
    /// Tokens in a block.
    pub block_size: usize,
    /// Element type.
    pub ty: KvType,
}

/// Where a layer's keys and values are, and how far back it attends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayer {
    /// Its group, which says whose block tables are meant.
    pub group: usize,
    /// Its place within a block of the group.
    pub index: usize,
    /// Positions that a token attends to, its own included; absent: all. Blocks wholly before them are never read.
    pub window: Option<usize>,
}

impl KvLayer {
    /// Layer `index` of the only group, with full attention.
    pub fn full(index: usize) -> Self {
        Self { group: 0, index, window: None }
    }

    /// The first position that the token at `position` attends to.
    pub fn first_seen(self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }
}

/// Where the tokens of a step stand. Tokens of a sequence are consecutive rows, in order of position.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Position of each token.
    pub positions: Vec<u32>,
    /// For each sequence.
    pub sequences: Vec<BatchSequence>,
    /// Block tables, concatenated; [`BatchSequence::table`] points in here.
    pub block_tables: Vec<u32>,
}

/// One sequence in a [`Batch`].
#[derive(Clone, Debug)]
pub struct BatchSequence {
    /// Its token rows.
    pub tokens: std::ops::Range<usize>,
    /// The block table of its first group within [`Batch::block_tables`]; block `i` holds positions
    /// `i * block_size ..`. Those of the other groups follow, each as long as this one.
    pub table: std::ops::Range<usize>,
}

impl Batch {
    /// The block table of a sequence for the layers of a group.
    pub fn table(&self, sequence: usize, group: usize) -> &[u32] {
        let std::ops::Range { start, end } = self.sequences[sequence].table;
        let len = end - start;
        &self.block_tables[start + group * len..end + group * len]
    }
}

/// Rotary embedding, applied to pairs of a head (Su et al., RoFormer, 2021).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairs {
    /// Element `i` with `i + head_dim / 2` (Hugging Face's layout).
    Halves,
    /// Element `2 i` with `2 i + 1` (the layout of GGUF's Llama weights).
    Adjacent,
}

/// Operations of a decoder.
pub trait Backend: Send + Sync + 'static {
    /// Activations `[rows, width]` in F32; rows may be fewer than allocated.
    type Buffer: Send;
    /// A weight matrix in the backend's own packed layout.
    type Matrix: Send + Sync;
    /// The KV cache's memory.
    type KvCache: Send;
    /// Memory outside the KV cache for blocks of it.
    type HostCache: Send;

    /// One line for the log: what runs here (instruction set, threads).
    fn describe(&self) -> String;

    /// A buffer of `rows x width` zeros.
    fn alloc(&self, rows: usize, width: usize) -> Result<Self::Buffer, BackendError>;
    /// Sets how many rows take part from now on (at most those allocated).
    fn set_rows(&self, buffer: &mut Self::Buffer, rows: usize);
    /// Packs a weight matrix. Quantised weights stay quantised.
    fn pack(&self, weight: &WeightView<'_>) -> Result<Self::Matrix, BackendError>;
    /// Packs several matrices of the same `columns` as one, their rows stacked in this order.
    fn pack_stacked(&self, weights: &[WeightView<'_>]) -> Result<Self::Matrix, BackendError>;
    /// A vector of weights as F32 (norms, biases): `[1, columns]`.
    fn vector(&self, weight: &WeightView<'_>) -> Result<Self::Buffer, BackendError>;
    /// The KV cache, zeroed.
    fn kv_cache(&self, shape: KvShape) -> Result<Self::KvCache, BackendError>;
    /// As many blocks of host memory as the shape says, zeroed.
    fn host_cache(&self, shape: KvShape) -> Result<Self::HostCache, BackendError>;

    /// `out[i] = table[ids[i]]`.
    fn embed_into(&self, table: &Self::Matrix, ids: &[u32], out: &mut Self::Buffer);
    /// `out = x / sqrt(mean(x^2) + eps) * weight`, by row (Zhang and Sennrich, RMSNorm, 2019).
    fn rms_norm_into(&self, x: &Self::Buffer, weight: &Self::Buffer, eps: f32, out: &mut Self::Buffer);
    /// `out[rows, out_features] = x[rows, in_features] * w^T`.
    fn linear_into(&self, x: &Self::Buffer, w: &Self::Matrix, out: &mut Self::Buffer);
    /// `x += y`.
    fn add_assign(&self, x: &mut Self::Buffer, y: &Self::Buffer);
    /// `out = silu(gate) * up` where a row of `gate_up` is `[gate | up]` (Shazeer, GLU variants, 2020).
    fn silu_mul_into(&self, gate_up: &Self::Buffer, out: &mut Self::Buffer);
    /// Rotates the query and key heads of `qkv` (a row is `[q heads | k heads | v heads]`) in place, then stores the
    /// batch's keys and values in the cache. `frequencies` has `head_dim / 2` angular frequencies per position.
    #[allow(clippy::too_many_arguments)]
    fn rope_and_store(
        &self,
        qkv: &mut Self::Buffer,
        q_heads: usize,
        frequencies: &[f32],
        pairs: RopePairs,
        batch: &Batch,
        cache: &mut Self::KvCache,
        layer: KvLayer,
    );
    /// Causal attention of the query heads in `qkv` over the cache, within the layer's window; `out` is `[tokens, q_heads * head_dim]`.
    /// Scores are scaled by `scale`; query head `h` reads key/value head `h / (q_heads / kv_heads)`.
    #[allow(clippy::too_many_arguments)]
    fn attention_into(
        &self,
        qkv: &Self::Buffer,
        q_heads: usize,
        scale: f32,
        batch: &Batch,
        cache: &Self::KvCache,
        layer: KvLayer,
        out: &mut Self::Buffer,
    );
    /// `out[i] = x[rows[i]]`.
    fn gather_rows_into(&self, x: &Self::Buffer, rows: &[usize], out: &mut Self::Buffer);
    /// Copies whole blocks, `from -> to`, in every layer.
    fn copy_blocks(&self, cache: &mut Self::KvCache, copies: &[(u32, u32)]);
    /// Copies whole blocks to host memory, `(cache, host)`, in every layer.
    fn swap_out(&self, cache: &Self::KvCache, host: &mut Self::HostCache, swaps: &[(u32, u32)]);
    /// Copies whole blocks from host memory, `(cache, host)`, in every layer.
    fn swap_in(&self, cache: &mut Self::KvCache, host: &Self::HostCache, swaps: &[(u32, u32)]);
    /// Reads one row to the host.
    fn read_row<'a>(&'a self, x: &'a Self::Buffer, row: usize) -> std::borrow::Cow<'a, [f32]>;
}
