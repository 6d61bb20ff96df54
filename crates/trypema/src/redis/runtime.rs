//! Spawns tasks on the caller's async runtime: Tokio or smol, depending on the features.

use std::future::Future;

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
