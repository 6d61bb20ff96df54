//! The only unsafe code of the crate: the lock of a shard, and the time-stamp counter of the processor.
//!
//! The lock is a flag beside the data, held for nanoseconds. A thread that keeps reading the flag takes its cache
//! line away from the holder. So a waiting thread tries once, then pauses for twice as long as the last time.
//! The interleavings are explored with loom (`local/loom_tests.rs`).

#![allow(unsafe_code)]

#[cfg(not(loom))]
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

#[cfg(loom)]
use loom::{cell::UnsafeCell, sync::atomic::AtomicBool, sync::atomic::Ordering, thread::yield_now};
#[cfg(not(loom))]
use std::{sync::atomic::AtomicBool, sync::atomic::Ordering, thread::yield_now};

/// The limit up to which pauses double. A thread that waits longer yields to another one.
const MAX_PAUSES: u32 = 256;

#[derive(Debug)]
pub(crate) struct Lock<T> {
    is_held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is accessed only through `LockGuard`, by one thread at a time, so sharing the lock
// between threads only ever sends the value from one to the next.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { is_held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits until no other thread holds the lock, and acquires it. A thread that already holds it deadlocks.
    #[inline(always)]
    pub(crate) fn lock(&self) -> LockGuard<'_, T> {
        if !self.try_acquire() {
            self.wait();
        }
        LockGuard::new(self)
    }

    /// Acquires the lock, unless another thread holds it. This never waits, so a thread that holds one lock
    /// may try another.
    pub(crate) fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        self.try_acquire().then(|| LockGuard::new(self))
    }

    /// Tries to acquire the lock, and returns whether it did. If so, the caller must go on to
    /// [`LockGuard::new`].
    #[inline(always)]
    fn try_acquire(&self) -> bool {
        self.is_held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
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
            if self.try_acquire() {
                return;
            }
        }
    }
}

/// The guard of a lock, with access to the value. Dropping it releases the lock, also during a panic.
pub(crate) struct LockGuard<'a, T> {
    is_held: &'a AtomicBool,
    #[cfg(not(loom))]
    value: &'a UnsafeCell<T>,
    #[cfg(loom)]
    value: Option<loom::cell::MutPtr<T>>,
}

impl<'a, T> LockGuard<'a, T> {
    /// Returns the guard. The caller must have just set `is_held`.
    #[inline(always)]
    fn new(lock: &'a Lock<T>) -> Self {
        #[cfg(not(loom))]
        let value = &lock.value;
        #[cfg(loom)]
        let value = Some(lock.value.get_mut());
        Self { is_held: &lock.is_held, value }
    }

    #[inline(always)]
    fn pointer(&self) -> *mut T {
        #[cfg(not(loom))]
        return self.value.get();
        #[cfg(loom)]
        return self.value.as_ref().map_or(std::ptr::null_mut(), |value| value.with(|pointer| pointer));
    }
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: `is_held` was false when this guard was made, and stays set as long as the guard lives, so
        // no other thread accesses the value. The reference borrows `self`, so the value cannot change
        // meanwhile.
        unsafe { &*self.pointer() }
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above. `self` is borrowed mutably, so there is no other reference.
        unsafe { &mut *self.pointer() }
    }
}

impl<T> Drop for LockGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        #[cfg(loom)]
        drop(self.value.take());
        self.is_held.store(false, Ordering::Release);
    }
}

/// Returns the ticks of the processor's time-stamp counter.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn time_stamp() -> u64 {
    // SAFETY: the instruction only writes two registers. The kernel can forbid it to a process (`PR_SET_TSC`), which
    // then gets a signal; the C library's clock uses it, too.
    unsafe { std::arch::x86_64::_rdtsc() }
}
