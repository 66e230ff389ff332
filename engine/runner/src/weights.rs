//! Weights as they stand in a file, before a backend packs them.

/// Element format of a stored weight. Block formats are those of GGUF (ggml's `block_*` structures).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[allow(non_camel_case_types)] // the formats' published names
pub enum WeightType {
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// Brain float.
    BF16,
    /// 32 signed bytes and an F16 scale: `x = d * q`.
    Q8_0,
    /// 32 nibbles and an F16 scale: `x = d * (q - 8)`.
    Q4_0,
    /// 32 nibbles, an F16 scale and an F16 minimum: `x = d * q + m`.
    Q4_1,
    /// 256 six-bit values in 16 sub-blocks with signed byte scales and an F16 scale: `x = d * sc * (q - 32)`.
    Q6_K,
}

impl WeightType {
    /// Every type.
    pub const ALL: [Self; 7] =
        [Self::F32, Self::F16, Self::BF16, Self::Q8_0, Self::Q4_0, Self::Q4_1, Self::Q6_K];

    /// Elements in a block; rows are whole blocks.
    pub const fn block_len(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => 1,
            Self::Q8_0 | Self::Q4_0 | Self::Q4_1 => 32,
            Self::Q6_K => 256,
        }
    }

    /// Bytes of a block.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Q8_0 => 34,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q6_K => 210,
        }
    }
}

/// A weight matrix or vector (`rows = 1`) in a file, row-major `[rows, columns]`, checked: `data` is exactly
/// `rows * columns / block_len * block_bytes` bytes, little-endian, of any alignment.
#[derive(Clone, Copy, Debug)]
pub struct WeightView<'a> {
    /// The published name, for error texts.
    pub name: &'a str,
    /// Element format.
    pub ty: WeightType,
    /// Output features; 1 for vectors.
    pub rows: usize,
    /// Input features; a multiple of `ty.block_len()`.
    pub columns: usize,
    /// The bytes.
    pub data: &'a [u8],
}
