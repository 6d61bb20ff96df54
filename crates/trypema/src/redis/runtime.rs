//! The caller's async runtime: Tokio or smol, depending on the features.
//!
//! What one runtime polls makes no progress while that runtime is not polled, and ends with it. So every runtime has
//! batchers, drivers and connections of its own ([`PerRuntime`]), and no caller depends on another's runtime.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

/// The number of runtimes that are remembered: enough for a runtime per thread, and a bound on connections that nothing
/// polls any more.
const MAX_RUNTIMES: usize = 256;

/// The runtime for tasks of callers that run outside any runtime.
#[derive(Debug, Clone, Default)]
pub(crate) struct Runtime {
    #[cfg(all(feature = "redis-tokio", not(feature = "redis-smol")))]
    tokio: Option<tokio::runtime::Handle>,
}

impl Runtime {
    /// Returns the runtime that the caller runs in, if any.
    pub(crate) fn current() -> Self {
        Self {
            #[cfg(all(feature = "redis-tokio", not(feature = "redis-smol")))]
            tokio: tokio::runtime::Handle::try_current().ok(),
        }
    }

    /// Whether the caller runs in a runtime that can open sockets.
    pub(super) fn is_available() -> bool {
        #[cfg(feature = "redis-tokio")]
        if tokio::runtime::Handle::try_current().is_ok() {
            return true;
        }
        cfg!(feature = "redis-smol")
    }

    /// Returns the id of the runtime that [`spawn`](Self::spawn) would spawn on.
    pub(super) fn id(&self) -> RuntimeId {
        #[cfg(feature = "redis-tokio")]
        if let Ok(tokio) = tokio::runtime::Handle::try_current() {
            return RuntimeId::Tokio(tokio.id());
        }
        #[cfg(all(feature = "redis-tokio", not(feature = "redis-smol")))]
        if let Some(tokio) = &self.tokio {
            return RuntimeId::Tokio(tokio.id());
        }
        RuntimeId::Global
    }

    /// Spawns `task` on the first of these: the Tokio runtime of the caller; smol, if its feature is on;
    /// the runtime in `self`. Without any of them the task is dropped.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        #[cfg(feature = "redis-tokio")]
        if let Ok(tokio) = tokio::runtime::Handle::try_current() {
            tokio.spawn(task);
            return;
        }
        self.spawn_outside(task);
    }

    #[cfg(feature = "redis-smol")]
    fn spawn_outside(&self, task: impl Future<Output = ()> + Send + 'static) {
        smol::spawn(task).detach();
    }

    #[cfg(not(feature = "redis-smol"))]
    fn spawn_outside(&self, task: impl Future<Output = ()> + Send + 'static) {
        #[cfg(feature = "redis-tokio")]
        if let Some(tokio) = &self.tokio {
            tokio.spawn(task);
            return;
        }
        drop(task);
    }
}

/// Spawns `task` from inside another task.
pub(super) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    Runtime::default().spawn(task);
}

/// Identifies a runtime among those that exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum RuntimeId {
    #[cfg(feature = "redis-tokio")]
    Tokio(tokio::runtime::Id),
    /// The executor of smol, whose threads always poll; or no runtime.
    Global,
}

/// One value for each of the runtimes that used it last.
#[derive(Debug)]
pub(super) struct PerRuntime<T> {
    /// The runtime that used its value last comes first.
    entries: Mutex<Vec<(RuntimeId, Arc<T>)>>,
}

impl<T> PerRuntime<T> {
    pub(super) fn new() -> Self {
        Self { entries: Mutex::default() }
    }

    /// Returns the value of the runtime that the caller runs in, or creates it. Then it also drops values that are over,
    /// and beyond [`MAX_RUNTIMES`] the one that was used least recently.
    pub(super) fn current(&self, create: impl FnOnce() -> T, is_over: impl Fn(&T) -> bool) -> Arc<T> {
        self.of(Runtime::default().id(), create, is_over)
    }

    fn of(&self, id: RuntimeId, create: impl FnOnce() -> T, is_over: impl Fn(&T) -> bool) -> Arc<T> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        match entries.iter().position(|(other, _)| *other == id) {
            Some(place) => entries[..=place].rotate_right(1),
            None => {
                entries.retain(|(_, value)| !is_over(value));
                entries.truncate(MAX_RUNTIMES - 1);
                entries.insert(0, (id, Arc::new(create())));
            }
        }
        Arc::clone(&entries[0].1)
    }
}
