//! Memory for weights, activations and the KV cache: page-aligned, zeroed, in huge pages where the system grants them.

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

use crate::backend::BackendError;

/// Whole cache lines of zeros, aligned to a page.
pub(super) struct Memory(MmapMut);

impl Memory {
    /// At least `bytes` bytes (and at least one page); `what` names their use in an error.
    pub(super) fn zeroed(what: &str, bytes: usize) -> Result<Self, BackendError> {
        let map = MmapMut::map_anon(bytes.max(1))
            .map_err(|_| BackendError::OutOfMemory { what: what.to_owned(), bytes })?;
        // Streaming through weights touches each page once a step: with small pages, address translation costs as
        // much as the data. A refusal only means small pages.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self(map))
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// A slice whose parts several threads write, each its own.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    _slice: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: it gives access only to parts, whose users keep them apart.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    /// Shares `slice`.
    pub(super) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), _slice: std::marker::PhantomData }
    }

    /// A pointer to the first element of `range`, which is checked.
    #[inline(always)]
    pub(super) fn pointer(self, range: std::ops::Range<usize>) -> *mut T {
        assert!(range.start <= range.end && range.end <= self.len, "a part lies within its slice");
        // SAFETY: within the slice.
        unsafe { self.start.add(range.start) }
    }

    /// The elements of `range`, which is checked.
    ///
    /// # Safety
    /// While the part lives no other part overlaps it.
    #[inline(always)]
    pub(super) unsafe fn part(self, range: std::ops::Range<usize>) -> &'a mut [T] {
        // SAFETY: within the slice, which is borrowed for 'a; exclusive by the caller's contract.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(range.clone()), range.len()) }
    }
}
