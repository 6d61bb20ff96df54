//! Spawns tasks on the async runtime of the call: Tokio or smol, as the features say.

use std::future::Future;

/// A runtime to spawn on where a call runs outside of any.
#[derive(Debug, Clone, Default)]
pub(super) struct Runtime {
    #[cfg(all(feature = "redis-tokio", not(feature = "redis-smol")))]
    tokio: Option<tokio::runtime::Handle>,
}

impl Runtime {
    /// The runtime that this runs in, if it does.
    pub(super) fn current() -> Self {
        Self {
            #[cfg(all(feature = "redis-tokio", not(feature = "redis-smol")))]
            tokio: tokio::runtime::Handle::try_current().ok(),
        }
    }

    /// Whether this runs in a runtime that sockets can be opened in.
    pub(super) fn is_here() -> bool {
        #[cfg(feature = "redis-tokio")]
        if tokio::runtime::Handle::try_current().is_ok() {
            return true;
        }
        cfg!(feature = "redis-smol")
    }

    /// Spawns `task` on the caller's runtime: Tokio inside of it, elsewhere smol if the feature is on, which needs no runtime of the caller's, else
    /// this one. Without any the task is dropped.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
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

/// Spawns `task` from inside another one.
pub(super) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    Runtime::default().spawn(task);
}
