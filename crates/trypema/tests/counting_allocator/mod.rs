//! A global allocator that counts the allocations of the current thread only, so that tests can run in
//! parallel.

#![allow(unsafe_code, reason = "an allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
    static ALLOCATED_BYTES: Cell<u64> = const { Cell::new(0) };
}

/// The number of allocations that this thread has made so far, including reallocations.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// The number of bytes that this thread has allocated so far, minus those it has freed.
pub(crate) fn live_bytes() -> i64 {
    LIVE_BYTES.get()
}

/// The number of bytes that this thread has allocated so far, whether or not it has freed them.
#[allow(dead_code, reason = "not every test binary asks")]
pub(crate) fn allocated_bytes() -> u64 {
    ALLOCATED_BYTES.get()
}

struct Counting;

// SAFETY: every call is forwarded to the system allocator unchanged. The counters do not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocation(layout.size());
        count_bytes(layout.size() as i64);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count_bytes(-(layout.size() as i64));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_allocation(size);
        count_bytes(size as i64 - layout.size() as i64);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

fn count_allocation(size: usize) {
    // A thread that is exiting has already dropped its counters, and no test reads them after that.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
    let _ = ALLOCATED_BYTES.try_with(|bytes| bytes.set(bytes.get() + size as u64));
}

fn count_bytes(bytes: i64) {
    let _ = LIVE_BYTES.try_with(|live| live.set(live.get() + bytes));
}
