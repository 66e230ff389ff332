//! The CPU backend: block-quantised weights multiplied as integers, paged attention, one pool of threads.
//!
//! | file | holds |
//! |---|---|
//! | `isa`, `simd/` | the choice of instruction set; vectors of each |
//! | `threads`, `memory` | the worker pool; aligned memory and what threads share of it |
//! | `matrix`, `activations` | layouts of weights and activations, packing and quantising |
//! | `formats`, `matmul` | what each block format computes; matrix products |
//! | `kv_cache`, `rope`, `attention` | the cache's layout, the way in, attention over it |
//! | `elementwise` | operations on single rows |

mod activations;
mod attention;
mod elementwise;
mod formats;
mod isa;
mod kv_cache;
mod matmul;
mod matrix;
mod memory;
mod rope;
mod simd;
#[cfg(test)]
mod tests;
mod threads;

use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard};

pub use isa::{ISA_VARIABLE, Isa, IsaError};
pub use kv_cache::CpuKvCache;
pub use matrix::CpuMatrix;

use crate::backend::{Backend, BackendError, Batch, KvLayer, KvShape, RopePairs};
use crate::weights::WeightView;

/// The backend could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    /// The instruction set asked for is not there.
    #[error(transparent)]
    Isa(#[from] IsaError),
    /// Threads could not be started.
    #[error(
        "could not start {threads} threads: {cause}; lower the number of threads or raise the limit on processes"
    )]
    Threads {
        /// How many.
        threads: usize,
        /// The system's error.
        cause: std::io::Error,
    },
}

/// Runs on this machine's processors.
pub struct CpuBackend {
    isa: Isa,
    pool: threads::Pool,
    scratch: Mutex<matmul::Scratch>,
    rope: Mutex<rope::RopeTable>,
}

/// `[rows, width]` floats.
pub struct CpuBuffer {
    memory: memory::Memory,
    capacity: usize,
    rows: usize,
    width: usize,
}

impl CpuBuffer {
    fn values(&self) -> &[f32] {
        bytemuck::cast_slice(&self.memory[..self.rows * self.width * size_of::<f32>()])
    }

    fn values_mut(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(&mut self.memory[..self.rows * self.width * size_of::<f32>()])
    }
}

impl CpuBackend {
    /// As many threads as the affinity mask and the control group's quota allow, and the best instruction set or the
    /// one in [`ISA_VARIABLE`].
    pub fn new() -> Result<Self, CpuError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with(Isa::from_env()?, threads)
    }

    /// With this instruction set and number of threads (at least 1, the calling thread included).
    pub fn with(isa: Isa, threads: usize) -> Result<Self, CpuError> {
        let pool = threads::Pool::new(threads).map_err(|cause| CpuError::Threads { threads, cause })?;
        Ok(Self { isa, pool, scratch: Mutex::default(), rope: Mutex::default() })
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The number of threads in use.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }
}

/// Locks; what these locks guard is rewritten before each use, so a panic of another holder does no harm.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Backend for CpuBackend {
    type Buffer = CpuBuffer;
    type Matrix = CpuMatrix;
    type KvCache = CpuKvCache;
    type HostCache = CpuKvCache;

    fn describe(&self) -> String {
        format!("cpu, {}, {} threads", self.isa, self.threads())
    }

    fn alloc(&self, rows: usize, width: usize) -> Result<CpuBuffer, BackendError> {
        let bytes = rows.saturating_mul(width).saturating_mul(size_of::<f32>());
        let memory = memory::Memory::zeroed("activations", bytes)?;
        Ok(CpuBuffer { memory, capacity: rows, rows, width })
    }

    fn set_rows(&self, buffer: &mut CpuBuffer, rows: usize) {
        assert!(rows <= buffer.capacity, "{rows} rows are more than the {} allocated", buffer.capacity);
        buffer.rows = rows;
    }

    fn pack(&self, weight: &WeightView<'_>) -> Result<CpuMatrix, BackendError> {
        self.pack_stacked(std::slice::from_ref(weight))
    }

    fn pack_stacked(&self, weights: &[WeightView<'_>]) -> Result<CpuMatrix, BackendError> {
        matrix::pack(&self.pool, weights)
    }

    fn vector(&self, weight: &WeightView<'_>) -> Result<CpuBuffer, BackendError> {
        let matrix = self.pack(weight)?;
        let mut buffer = self.alloc(weight.rows, weight.columns)?;
        for row in 0..weight.rows {
            matrix.read_row(row, &mut buffer.values_mut()[row * weight.columns..][..weight.columns]);
        }
        Ok(buffer)
    }

    fn kv_cache(&self, shape: KvShape) -> Result<CpuKvCache, BackendError> {
        CpuKvCache::new(shape)
    }

    fn host_cache(&self, shape: KvShape) -> Result<CpuKvCache, BackendError> {
        CpuKvCache::new(shape)
    }

    fn embed_into(&self, table: &CpuMatrix, ids: &[u32], out: &mut CpuBuffer) {
        assert!(out.width == table.columns && out.rows == ids.len());
        let width = out.width;
        let out = memory::Shared::new(out.values_mut());
        elementwise::for_rows(&self.pool, ids.len(), width, |rows| {
            for row in rows {
                // SAFETY: a row of this item.
                let out = unsafe { out.part(row * width..(row + 1) * width) };
                table.read_row(ids[row] as usize, out);
            }
        });
    }

    fn rms_norm_into(&self, x: &CpuBuffer, weight: &CpuBuffer, eps: f32, out: &mut CpuBuffer) {
        assert!(x.width == weight.values().len() && x.width == out.width);
        elementwise::rms_norm(self.isa, &self.pool, x.values(), weight.values(), eps, out.values_mut());
    }

    fn linear_into(&self, x: &CpuBuffer, w: &CpuMatrix, out: &mut CpuBuffer) {
        assert!(x.width == w.columns && out.width == w.rows && x.rows == out.rows);
        let scratch = &mut lock(&self.scratch);
        matmul::matmul(self.isa, &self.pool, scratch, x.values(), x.rows, w, out.values_mut());
    }

    fn add_assign(&self, x: &mut CpuBuffer, y: &CpuBuffer) {
        assert!(x.width == y.width && x.rows == y.rows);
        elementwise::add_assign(self.isa, &self.pool, x.values_mut(), y.values());
    }

    fn silu_mul_into(&self, gate_up: &CpuBuffer, out: &mut CpuBuffer) {
        assert!(gate_up.width == 2 * out.width && gate_up.rows == out.rows);
        let width = out.width;
        elementwise::silu_mul(self.isa, &self.pool, gate_up.values(), width, out.values_mut());
    }

    fn rope_and_store(
        &self,
        qkv: &mut CpuBuffer,
        q_heads: usize,
        frequencies: &[f32],
        pairs: RopePairs,
        batch: &Batch,
        cache: &mut CpuKvCache,
        layer: KvLayer,
    ) {
        let rope = rope::Rope { qkv: qkv.values_mut(), q_heads, frequencies, pairs, batch };
        rope::rope_and_store(self.isa, &self.pool, &mut lock(&self.rope), rope, cache, layer);
    }

    fn attention_into(
        &self,
        qkv: &CpuBuffer,
        q_heads: usize,
        scale: f32,
        batch: &Batch,
        cache: &CpuKvCache,
        layer: KvLayer,
        out: &mut CpuBuffer,
    ) {
        let inputs = attention::Attention { qkv: qkv.values(), q_heads, scale, batch, layer };
        attention::attention(self.isa, &self.pool, inputs, cache, out.values_mut());
    }

    fn gather_rows_into(&self, x: &CpuBuffer, rows: &[usize], out: &mut CpuBuffer) {
        assert!(x.width == out.width && out.rows == rows.len());
        let width = x.width;
        for (out, &row) in out.values_mut().chunks_exact_mut(width).zip(rows) {
            out.copy_from_slice(&x.values()[row * width..][..width]);
        }
    }

    fn copy_blocks(&self, cache: &mut CpuKvCache, copies: &[(u32, u32)]) {
        cache.copy_blocks(copies);
    }

    fn swap_out(&self, cache: &CpuKvCache, host: &mut CpuKvCache, swaps: &[(u32, u32)]) {
        cache.copy_blocks_to(host, swaps.iter().copied());
    }

    fn swap_in(&self, cache: &mut CpuKvCache, host: &CpuKvCache, swaps: &[(u32, u32)]) {
        host.copy_blocks_to(cache, swaps.iter().map(|&(cache, host)| (host, cache)));
    }

    fn read_row<'a>(&'a self, x: &'a CpuBuffer, row: usize) -> Cow<'a, [f32]> {
        Cow::Borrowed(&x.values()[row * x.width..][..x.width])
    }
}
