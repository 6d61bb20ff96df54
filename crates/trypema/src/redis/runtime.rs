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

    /// Spawns `task` on the caller's runtime, or on this one where there is none; whether there was either. Inside a Tokio runtime that is
    /// Tokio; elsewhere it is smol if the feature is on, which needs no runtime of the caller's.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> bool {
        #[cfg(feature = "redis-tokio")]
        if let Ok(tokio) = tokio::runtime::Handle::try_current() {
            tokio.spawn(task);
            return true;
        }
        #[cfg(feature = "redis-smol")]
        {
            smol::spawn(task).detach();
            return true;
        }
        #[cfg(all(feature = "redis-tokio", not(feature = "redis-smol")))]
        if let Some(tokio) = &self.tokio {
            tokio.spawn(task);
            return true;
        }
        #[cfg(not(feature = "redis-smol"))]
        {
            drop(task);
            false
        }
    }
}

/// Spawns `task` from inside another one.
pub(super) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    Runtime::default().spawn(task);
}
