//! Counts what a thread allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread holds, and the most that it held.
    static HELD: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call goes to the system's allocator unchanged; the counters are plain numbers.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.with(|held| {
            let now = held.get().0.saturating_add(layout.size());
            held.set((now, held.get().1.max(now)));
        });
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.with(|held| held.set((held.get().0.saturating_sub(layout.size()), held.get().1)));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Runs something, and says how many bytes this thread held at most for it.
pub(crate) fn peak<T>(run: impl FnOnce() -> T) -> (T, usize) {
    HELD.with(|held| held.set((0, 0)));
    let result = run();
    (result, HELD.with(|held| held.get().1))
}
