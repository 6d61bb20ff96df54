//! A thread of its own for what takes long: reading, comparing and compiling thousands of rules. Threads that decide never do that; and
//! since it is one thread, with a lower priority than theirs, and its own memory to take from and give back to, it takes little from them.

use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use thiserror::Error;
use tokio::sync::oneshot;

/// How much less than others the thread wants of a processor: as little as can be said.
const NICENESS: i32 = 19;

type Work = Box<dyn FnOnce() + Send>;

/// The work was not done: it panicked, or the process is about to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the work was interrupted")]
pub(crate) struct Interrupted;

/// Does the work there, after whatever was asked for before.
pub(crate) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Interrupted> {
    let (done, waiting) = oneshot::channel();
    let work: Work = Box::new(move || {
        // Whoever asked may have gone away.
        let _ = done.send(work());
    });
    WORKER.send(work).map_err(|_| Interrupted)?;
    waiting.await.map_err(|_| Interrupted)
}

/// Takes something down there that has thousands of parts.
pub(crate) fn discard<T: Send + 'static>(value: T) {
    // If nobody is there to do it, it is done here.
    let _ = WORKER.send(Box::new(move || drop(value)));
}

static WORKER: LazyLock<Sender<Work>> = LazyLock::new(start);

fn start() -> Sender<Work> {
    let (sender, receiver) = channel::<Work>();
    let started = thread::Builder::new().name("rules".to_owned()).spawn(move || {
        // Without the right to it, it is done at the same priority.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        for work in receiver {
            // One that panics is told to whoever asked, and must not take the others along.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        }
    });
    if let Err(error) = started {
        tracing::error!(%error, "no thread for rules could be started");
    }
    sender
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_that_panics_is_told_and_takes_nothing_along() {
        assert_eq!(apart(|| 1).await, Ok(1));
        assert_eq!(apart(|| -> u32 { panic!("on purpose") }).await, Err(Interrupted));
        assert_eq!(apart(|| 2).await, Ok(2));
    }
}
