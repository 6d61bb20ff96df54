//! Tasks that the background is to run.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
use futures_channel::oneshot;
use futures_util::Stream;
use futures_util::future::BoxFuture;

/// A future that the background runs to its end.
pub(in crate::hybrid) type Task = BoxFuture<'static, ()>;

/// A queue with at most one receiver at a time. It is bounded by the number of keys, each of which is asked for once at a time, and
/// of callers that have gone away.
#[derive(Debug, Default)]
pub(in crate::hybrid) struct Queue {
    sender: Mutex<Option<Sender>>,
    is_open: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Sender {
    tasks: UnboundedSender<Task>,
    /// Dropped when the queue is closed.
    _close: oneshot::Sender<Infallible>,
}

/// The receiving side of the queue. Dropping it drops what is queued.
#[derive(Debug)]
pub(super) struct Tasks {
    receiver: UnboundedReceiver<Task>,
    is_open: Arc<AtomicBool>,
}

/// Ready when the queue is closed.
pub(super) type Closed = oneshot::Receiver<Infallible>;

impl Queue {
    /// The receiving side, and what tells that it is closed; `None` while there is another.
    pub(super) fn open(&self) -> Option<(Tasks, Closed)> {
        let mut sender = self.lock();
        if self.is_open.swap(true, Ordering::AcqRel) {
            return None;
        }
        let (tasks, receiver) = mpsc::unbounded();
        let (close, closed) = oneshot::channel();
        *sender = Some(Sender { tasks, _close: close });
        Some((Tasks { receiver, is_open: Arc::clone(&self.is_open) }, closed))
    }

    /// Whether somebody runs what is pushed.
    pub(in crate::hybrid) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Leaves a task to the background; it is dropped if nobody runs it.
    pub(in crate::hybrid) fn push(&self, task: Task) {
        let tasks = self.lock().as_ref().map(|sender| sender.tasks.clone());
        if let Some(tasks) = tasks {
            // What is rejected is dropped here, where nothing is locked.
            let _ = tasks.unbounded_send(task);
        }
    }

    /// Lets the receiver end after what is queued.
    pub(in crate::hybrid) fn close(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Sender>> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream for Tasks {
    type Item = Task;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Task>> {
        Pin::new(&mut self.receiver).poll_next(context)
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.is_open.store(false, Ordering::Release);
    }
}
