//! The KV cache's memory.
//!
//! Keys lie with 16 positions side by side, so that a vector lane is a position and scores need no sum across lanes;
//! values lie by position, so that a lane is an element of the head:
//!
//! ```text
//!  [layer][block][kv head] | keys: [group of 16 positions][head_dim][16] | values: [block_size][head_dim, padded to 16] |
//! ```
//!
//! A block size that is no multiple of 16 leaves lanes of its last group unused. All that is stored is finite, so an
//! unused or masked place, which counts with weight 0, never spoils a sum.

use bytemuck::Pod;
use half::f16;

use super::memory::{Memory, Shared};
use super::simd::Simd;
use crate::backend::{BackendError, KvShape, KvType};

/// Positions that lie side by side.
pub(super) const GROUP: usize = 16;
/// Largest head: kernels keep a tile of them on the stack.
pub(super) const MAX_HEAD_DIM: usize = 256;

/// Keys and values of all layers.
pub struct CpuKvCache {
    pub(super) layout: KvLayout,
    memory: Memory,
}

/// Offsets within the cache, in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct KvLayout {
    pub(super) shape: KvShape,
    /// `head_dim` padded to whole vectors.
    pub(super) padded_dim: usize,
    /// Groups of a block.
    pub(super) groups: usize,
}

impl KvLayout {
    fn new(shape: KvShape) -> Self {
        let groups = shape.block_size.div_ceil(GROUP);
        Self { shape, padded_dim: shape.head_dim.next_multiple_of(GROUP), groups }
    }

    /// Elements of the keys of one head in a block.
    pub(super) fn keys_len(self) -> usize {
        self.groups * self.shape.head_dim * GROUP
    }

    /// Elements of keys and values of one head in a block.
    pub(super) fn head_len(self) -> usize {
        self.keys_len() + self.shape.block_size * self.padded_dim
    }

    fn layer_len(self) -> usize {
        self.shape.num_blocks * self.shape.kv_heads * self.head_len()
    }

    /// Where the keys of a head in a block of a layer start.
    pub(super) fn head_start(self, block: usize, head: usize) -> usize {
        (block * self.shape.kv_heads + head) * self.head_len()
    }

    /// Positions in group `group` of a block.
    pub(super) fn group_len(self, group: usize) -> usize {
        (self.shape.block_size - group * GROUP).min(GROUP)
    }
}

/// An element of the cache.
pub(super) trait KvElement: Pod + Send + Sync {
    /// The greatest finite value.
    const MAX: f32;

    /// # Safety
    /// `LANES` readable elements.
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F;
    /// # Safety
    /// `LANES` writable elements.
    unsafe fn store<S: Simd>(s: S, p: *mut Self, x: S::F);
}

impl KvElement for f32 {
    const MAX: f32 = f32::MAX;

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F {
        // SAFETY: the caller's contract.
        unsafe { s.load(p) }
    }

    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut Self, x: S::F) {
        // SAFETY: the caller's contract.
        unsafe { s.store(p, x) }
    }
}

/// IEEE half, as bits.
impl KvElement for u16 {
    const MAX: f32 = f16::MAX.to_f32_const();

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F {
        // SAFETY: the caller's contract.
        unsafe { s.load_f16(p) }
    }

    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut Self, x: S::F) {
        // SAFETY: the caller's contract.
        unsafe { s.store_f16(p, x) }
    }
}

impl CpuKvCache {
    /// A zeroed cache.
    pub(super) fn new(shape: KvShape) -> Result<Self, BackendError> {
        if shape.head_dim == 0 || shape.head_dim > MAX_HEAD_DIM || shape.block_size == 0 {
            return Err(BackendError::Unsupported {
                name: "kv cache".to_owned(),
                reason: format!(
                    "heads of {} elements in blocks of {} tokens: use heads of 1 to {MAX_HEAD_DIM} and blocks of at least 1",
                    shape.head_dim, shape.block_size
                ),
            });
        }
        let layout = KvLayout::new(shape);
        let size = match shape.ty {
            KvType::F16 => 2,
            KvType::F32 => 4,
        };
        let bytes = [shape.layers, shape.num_blocks, shape.kv_heads, layout.head_len(), size]
            .iter()
            .try_fold(1usize, |product, &n| product.checked_mul(n))
            .ok_or(BackendError::OutOfMemory { what: "the KV cache".to_owned(), bytes: usize::MAX })?;
        Ok(Self { layout, memory: Memory::zeroed("the KV cache", bytes)? })
    }

    /// One layer's elements.
    pub(super) fn layer<E: KvElement>(&self, layer: usize) -> &[E] {
        let len = self.layout.layer_len();
        &self.elements()[layer * len..(layer + 1) * len]
    }

    /// One layer's elements.
    pub(super) fn layer_mut<E: KvElement>(&mut self, layer: usize) -> &mut [E] {
        let (len, total) = (self.layout.layer_len(), self.layout.layer_len() * self.layout.shape.layers);
        let elements: &mut [E] = bytemuck::cast_slice_mut(&mut self.memory[..total * size_of::<E>()]);
        &mut elements[layer * len..(layer + 1) * len]
    }

    fn elements<E: KvElement>(&self) -> &[E] {
        let total = self.layout.layer_len() * self.layout.shape.layers;
        bytemuck::cast_slice(&self.memory[..total * size_of::<E>()])
    }

    /// Copies whole blocks in every layer, one after the other.
    pub(super) fn copy_blocks(&mut self, copies: &[(u32, u32)]) {
        for &(from, to) in copies {
            for layer in 0..self.layout.shape.layers {
                let (from, to) = (self.block_bytes(layer, from), self.block_bytes(layer, to));
                self.memory.copy_within(from, to.start);
            }
        }
    }

    /// Copies whole blocks, from this one's to the other's, in every layer. Both are of one shape but for the number
    /// of blocks.
    pub(super) fn copy_blocks_to(&self, other: &mut Self, copies: impl Iterator<Item = (u32, u32)>) {
        for (from, to) in copies {
            for layer in 0..self.layout.shape.layers {
                let (from, to) = (self.block_bytes(layer, from), other.block_bytes(layer, to));
                other.memory[to].copy_from_slice(&self.memory[from]);
            }
        }
    }

    /// Where a block of a layer is.
    fn block_bytes(&self, layer: usize, block: u32) -> std::ops::Range<usize> {
        let KvShape { num_blocks, ty, .. } = self.layout.shape;
        let block = block as usize;
        assert!(block < num_blocks, "block {block} is beyond the {num_blocks} of this cache");
        let size = if ty == KvType::F16 { 2 } else { 4 };
        let len = self.layout.shape.kv_heads * self.layout.head_len() * size;
        let start = (layer * num_blocks + block) * len;
        start..start + len
    }
}

/// A head's elements as the cache holds them: nearest and finite (not-a-number becomes the greatest value).
#[inline(always)]
fn to_elements<S: Simd, E: KvElement>(s: S, x: &[f32], out: &mut [E; MAX_HEAD_DIM]) {
    for (start, x) in (0..).step_by(S::LANES).zip(x.chunks(S::LANES)) {
        let mut lanes = [0.0; GROUP];
        lanes[..x.len()].copy_from_slice(x);
        let out = &mut out[start..start + S::LANES];
        // SAFETY: a vector has at most 16 lanes; `out` has one vector's elements.
        unsafe {
            let bounded = s.max(s.min(s.load(lanes.as_ptr()), s.splat(E::MAX)), s.splat(-E::MAX));
            E::store(s, out.as_mut_ptr(), bounded);
        }
    }
}

/// Writes one head's key and value at a position of a block.
///
/// # Safety
/// No other thread touches this head's part of the layer.
#[inline(always)]
pub(super) unsafe fn store_head<S: Simd, E: KvElement>(
    s: S,
    layer: Shared<'_, E>,
    layout: KvLayout,
    (block, head, slot): (usize, usize, usize),
    key: &[f32],
    value: &[f32],
) {
    let start = layout.head_start(block, head);
    // SAFETY: exclusive by the caller's contract.
    let elements = unsafe { layer.part(start..start + layout.head_len()) };
    let (keys, values) = elements.split_at_mut(layout.keys_len());
    let mut converted = [E::zeroed(); MAX_HEAD_DIM];
    to_elements(s, key, &mut converted);
    let group = &mut keys[slot / GROUP * key.len() * GROUP..][..key.len() * GROUP];
    for (positions, &key) in group.chunks_exact_mut(GROUP).zip(&converted) {
        positions[slot % GROUP] = key;
    }
    to_elements(s, value, &mut converted);
    values[slot * layout.padded_dim..][..value.len()].copy_from_slice(&converted[..value.len()]);
}
