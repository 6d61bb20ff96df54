//! The queue of background tasks.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
use futures_channel::oneshot;
use futures_util::Stream;
use futures_util::future::BoxFuture;

/// A future that the background runs to completion.
pub(in crate::hybrid) type Task = BoxFuture<'static, ()>;

/// A queue with at most one receiver at a time. Its length is bounded: each key has at most one request in
/// the queue, and each dropped caller at most one.
#[derive(Debug, Default)]
pub(in crate::hybrid) struct TaskQueue {
    sender: Mutex<Option<TaskSender>>,
    is_open: Arc<AtomicBool>,
}

#[derive(Debug)]
struct TaskSender {
    tasks: UnboundedSender<Task>,
    /// Dropping it notifies the sweeper that the queue is closed.
    _close: oneshot::Sender<Infallible>,
}

/// The receiving side of the queue. Dropping it drops the queued tasks.
#[derive(Debug)]
pub(super) struct TaskReceiver {
    receiver: UnboundedReceiver<Task>,
    is_open: Arc<AtomicBool>,
}

/// A future that completes when the queue is closed.
pub(super) type ClosedSignal = oneshot::Receiver<Infallible>;

impl TaskQueue {
    /// Returns the receiving side, and a future that completes when the queue is closed. Returns `None` if
    /// there is a receiver already.
    pub(super) fn open(&self) -> Option<(TaskReceiver, ClosedSignal)> {
        let mut sender = self.lock();
        if self.is_open.swap(true, Ordering::AcqRel) {
            return None;
        }
        let (tasks, receiver) = mpsc::unbounded();
        let (close, closed) = oneshot::channel();
        *sender = Some(TaskSender { tasks, _close: close });
        Some((TaskReceiver { receiver, is_open: Arc::clone(&self.is_open) }, closed))
    }

    /// Whether the queue has a receiver that runs its tasks.
    pub(in crate::hybrid) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Adds a task. Drops it if the queue has no receiver.
    pub(in crate::hybrid) fn push(&self, task: Task) {
        let tasks = self.lock().as_ref().map(|sender| sender.tasks.clone());
        if let Some(tasks) = tasks {
            // A rejected task is dropped here, where no lock is held: its destructor locks the table.
            let _ = tasks.unbounded_send(task);
        }
    }

    /// Closes the queue. The receiver ends after the tasks that are already queued.
    pub(in crate::hybrid) fn close(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<TaskSender>> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream for TaskReceiver {
    type Item = Task;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Task>> {
        Pin::new(&mut self.receiver).poll_next(context)
    }
}

impl Drop for TaskReceiver {
    fn drop(&mut self) {
        self.is_open.store(false, Ordering::Release);
    }
}
