//! The lock of a shard: a word beside the data, held for nanoseconds.
//!
//! A waiter that keeps looking at the lock takes its cache line away from the holder, so it looks once and
//! then stays away for twice as long as the last time. This is the only unsafe code of the crate; its
//! interleavings are explored with loom (`loom_tests.rs`).

#![allow(unsafe_code)]

#[cfg(loom)]
use loom::{cell::UnsafeCell, sync::atomic::AtomicBool, sync::atomic::Ordering, thread::yield_now};
#[cfg(not(loom))]
use std::{sync::atomic::AtomicBool, sync::atomic::Ordering, thread::yield_now};

/// Pauses double up to this; whoever waits longer lets another thread run.
const MAX_PAUSES: u32 = 256;

#[derive(Debug)]
pub(crate) struct Lock<T> {
    is_held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through `with`, by one thread at a time, so sharing the lock between
// threads only ever sends the value from one to the next.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { is_held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Runs `work` alone with the value. `work` must not come back to the same lock.
    #[inline]
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        if !self.is_taken() {
            self.wait();
        }
        self.run(work)
    }

    /// As [`Lock::with`], unless another thread is inside. Waits for nobody, so that a thread that is inside
    /// one lock may try another.
    pub(crate) fn try_with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.is_taken().then(|| self.run(work))
    }

    /// Whether the lock was free and is now held by the caller, who must go on to [`Lock::run`].
    #[inline]
    fn is_taken(&self) -> bool {
        self.is_held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn run<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let _held = Held(&self.is_held);
        // SAFETY: the caller has just set `is_held`, which was false, and it stays set until `_held` is
        // dropped, after the reference: no other thread is inside.
        self.value.with_mut(|value| work(unsafe { &mut *value }))
    }

    #[cold]
    fn wait(&self) {
        let mut pauses = 1;
        loop {
            if pauses <= MAX_PAUSES {
                (0..pauses).for_each(|_| std::hint::spin_loop());
                pauses *= 2;
            } else {
                yield_now();
            }
            #[cfg(loom)]
            yield_now();
            if self.is_taken() {
                return;
            }
        }
    }
}

/// Lets go of the lock, also when the work panics.
struct Held<'a>(&'a AtomicBool);

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The standard cell with loom's way of access.
#[cfg(not(loom))]
#[derive(Debug)]
struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    fn with_mut<R>(&self, work: impl FnOnce(*mut T) -> R) -> R {
        work(self.0.get())
    }
}
