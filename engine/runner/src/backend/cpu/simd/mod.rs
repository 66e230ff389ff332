//! Vectors: the few operations that every kernel is written in, once per instruction set.
//!
//! A kernel is a struct with a generic [`Kernel::run`]; an instruction set runs it inside a function that has its
//! target features on, so that everything inlines into code for that set. The value `s: S` is the proof that the
//! processor has the set: it is made only after detection.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
pub(super) mod math;
pub(super) mod portable;

/// Code that runs on any instruction set.
pub(super) trait Kernel {
    /// Does the work.
    fn run<S: Simd>(self, s: S);
}

/// `LANES` floats, as many 32-bit integers, and `4 * LANES` bytes.
///
/// Loads and stores take pointers of any alignment; what they touch must lie within one allocation.
pub(super) trait Simd: Copy + Send + Sync + 'static {
    /// Floats in a vector; divides 16.
    const LANES: usize;
    /// Rows whose results a matrix kernel holds in registers.
    const TILE: usize;
    /// Query rows whose scores an attention kernel holds in registers.
    const QUERY_TILE: usize;

    /// Floats.
    type F: Copy;
    /// Integers.
    type I: Copy;
    /// Bytes: lane `i` owns bytes `4 i .. 4 i + 4`.
    type B: Copy;

    /// The same value in every lane.
    fn splat(self, x: f32) -> Self::F;
    /// # Safety
    /// `LANES` readable floats.
    unsafe fn load(self, p: *const f32) -> Self::F;
    /// # Safety
    /// `LANES` writable floats.
    unsafe fn store(self, p: *mut f32, x: Self::F);
    /// From IEEE halves.
    ///
    /// # Safety
    /// `LANES` readable halves.
    unsafe fn load_f16(self, p: *const u16) -> Self::F;
    /// To IEEE halves, to nearest even.
    ///
    /// # Safety
    /// `LANES` writable halves.
    unsafe fn store_f16(self, p: *mut u16, x: Self::F);
    /// From brain floats.
    ///
    /// # Safety
    /// `LANES` readable brain floats.
    unsafe fn load_bf16(self, p: *const u16) -> Self::F;
    /// From signed bytes.
    ///
    /// # Safety
    /// `LANES` readable bytes.
    unsafe fn load_i8(self, p: *const i8) -> Self::F;
    /// To signed bytes; every lane is in -128..=127.
    ///
    /// # Safety
    /// `LANES` writable bytes.
    unsafe fn store_i8(self, p: *mut i8, x: Self::I);

    /// Asks for the cache line at `p`, wherever that is.
    fn prefetch<T>(self, p: *const T);

    /// `a + b`.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a - b`.
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b`.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`.
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, fused where the set can.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The greater; `b` where one is not a number.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// The less; `b` where one is not a number.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// Keeps the first `n` lanes (all when `n >= LANES`, none when `n <= 0`) and fills the others.
    fn first(self, x: Self::F, n: isize, fill: f32) -> Self::F;
    /// `x`, or 0 in lanes where `key < limit`.
    fn zero_below(self, x: Self::F, key: Self::F, limit: f32) -> Self::F;
    /// Sum of the lanes, in a fixed order.
    fn sum(self, x: Self::F) -> f32;
    /// Greatest lane.
    fn max_lane(self, x: Self::F) -> f32;
    /// To the nearest integer, ties to even.
    fn round(self, x: Self::F) -> Self::I;
    /// Integers as floats.
    fn to_f32(self, x: Self::I) -> Self::F;
    /// `2^n` for `n` in -126..=127.
    fn exp2(self, n: Self::I) -> Self::F;

    /// # Safety
    /// `4 * LANES` readable bytes.
    unsafe fn load_bytes(self, p: *const u8) -> Self::B;
    /// The low four bits of each byte.
    fn low_nibbles(self, x: Self::B) -> Self::B;
    /// The high four bits of each byte.
    fn high_nibbles(self, x: Self::B) -> Self::B;
    /// `low | (two bits of x, from bit SHIFT on) << 4`, by byte.
    fn with_two_bits<const SHIFT: i32>(self, low: Self::B, x: Self::B) -> Self::B;
    /// Dot products of weights with the activations of `N` rows: lane `i` of result `n` is
    /// `*init[n] + sum(w[g][4 i + j] * x[n][4 g + j])` over `g < G`, `j < 4`. Weights are unsigned and less than
    /// `2^BITS`, with `BITS` of 4 or 6 and `G` at most 8; activations are in -127..=127.
    ///
    /// # Safety
    /// `4 * G` readable bytes at each of `x`, an integer at each of `init`.
    unsafe fn dot<const BITS: u32, const G: usize, const N: usize>(
        self,
        w: &[Self::B; G],
        x: [*const i8; N],
        init: [*const i32; N],
    ) -> [Self::I; N];
    /// Bytes with an offset of 128, in the form that [`Simd::dot_bytes`] takes.
    fn prepare_bytes(self, x: Self::B) -> Self::B;
    /// `sum((w - 128) * x)` as in [`Simd::dot`], for weights of eight bits from [`Simd::prepare_bytes`];
    /// each of `init` must be `-128 * sum(x)` of its row.
    ///
    /// # Safety
    /// As for [`Simd::dot`].
    unsafe fn dot_bytes<const G: usize, const N: usize>(
        self,
        w: &[Self::B; G],
        x: [*const i8; N],
        init: [*const i32; N],
    ) -> [Self::I; N];
}
