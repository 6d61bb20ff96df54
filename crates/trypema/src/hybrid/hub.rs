//! What all hybrid limiters of a provider share: the clock, who this instance is, and its background work.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use crate::clock::Source;
use crate::redis::Sharer;

/// An instance counts as live until it has said nothing for this long.
pub(super) const LIVE_FOR: Duration = Duration::from_secs(3);

/// Something that the background loop brings to its end.
pub(super) type Errand = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Debug)]
pub(super) struct Hub {
    pub(super) clock: Source,
    pub(super) sync_us: u64,
    instance: u64,
    bell: Mutex<Bell>,
    is_running: AtomicBool,
    /// How often Redis was asked for a lease.
    asked: AtomicU64,
}

/// What wakes the loop, and what it is woken for.
#[derive(Default)]
struct Bell {
    is_rung: bool,
    sleeper: Option<Waker>,
    errands: Vec<Errand>,
}

impl std::fmt::Debug for Bell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bell").field("errands", &self.errands.len()).finish_non_exhaustive()
    }
}

impl Hub {
    pub(super) fn new(clock: Source, sync_interval: Duration) -> Self {
        Self {
            clock,
            sync_us: u64::try_from(sync_interval.as_micros()).unwrap_or(u64::MAX),
            instance: crate::redis::random(),
            bell: Mutex::default(),
            is_running: AtomicBool::new(false),
            asked: AtomicU64::new(0),
        }
    }

    /// This instance, as one that shares keys.
    pub(super) fn sharer(&self) -> Sharer {
        Sharer { instance: self.instance, live_for_us: LIVE_FOR.as_micros() as u64 }
    }

    /// This instance, leaving.
    pub(super) fn leaver(&self) -> Sharer {
        Sharer { live_for_us: 0, ..self.sharer() }
    }

    /// A number that differs between instances.
    pub(super) fn instance(&self) -> u64 {
        self.instance
    }

    pub(super) fn count_ask(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Whether somebody brings errands to their end.
    pub(super) fn is_running(&self) -> bool {
        self.is_running.load(Ordering::Acquire)
    }

    /// Leaves an errand to the loop; without one it is dropped.
    pub(super) fn leave(&self, errand: Errand) {
        let mut bell = self.bell();
        if self.is_running() {
            bell.errands.push(errand);
            drop(bell);
            self.ring();
        }
    }

    /// Wakes the loop.
    pub(super) fn ring(&self) {
        let mut bell = self.bell();
        bell.is_rung = true;
        let sleeper = bell.sleeper.take();
        drop(bell);
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }

    /// What was left since; `None`, and `waker` is woken for more, if nothing was.
    pub(super) fn listen(&self, waker: &Waker) -> Option<Vec<Errand>> {
        let mut bell = self.bell();
        if std::mem::take(&mut bell.is_rung) {
            return Some(std::mem::take(&mut bell.errands));
        }
        bell.sleeper = Some(waker.clone());
        None
    }

    /// One loop at a time: whether this is it.
    pub(super) fn start(&self) -> bool {
        !self.is_running.swap(true, Ordering::AcqRel)
    }

    pub(super) fn stop(&self) {
        let mut bell = self.bell();
        self.is_running.store(false, Ordering::Release);
        let left = std::mem::take(&mut bell.errands);
        drop(bell);
        drop(left);
    }

    fn bell(&self) -> MutexGuard<'_, Bell> {
        self.bell.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
