//! Background threads for long work: parsing, comparing, compiling and explaining thousands of rules.
//!
//! The threads that decide requests never do such work. (A rules file is read and compiled on a blocking thread
//! of Tokio, because its file system may hang.) There are three workers. Each is one thread with a
//! lower priority and its own queue, so a client that only reads never delays a rule change: an emergency
//! block takes effect even while a reader sends dry runs of 16 MiB in a loop. Nor does it delay metrics.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;

use thiserror::Error;
use tokio::sync::oneshot;

/// The worker that runs a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Worker {
    /// Loads rules and changes stored ones.
    Changes,
    /// Serves readers: dry runs, exports, listings, history, explanations.
    Reads,
    /// Serves operators, who need no token: metrics, the description of the API.
    Operators,
}

/// The number of read tasks that may be unfinished. Each belongs to a waiting request, so beyond this
/// number it is better to refuse the next request at once.
const MAX_WAITING_READS: usize = 32;

type Task = Box<dyn FnOnce() + Send>;

/// The reason why a task did not finish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum WorkerError {
    /// The task panicked, or the process is about to end.
    #[error("the task was interrupted")]
    Interrupted,
    /// Too many read tasks are waiting already.
    #[error("too many requests that read rules are queued; retry")]
    Busy,
}

/// The workers of a server. A thread starts with its first task, and ends after its last one when this value
/// is dropped.
#[derive(Debug, Default)]
pub(crate) struct BackgroundWorkers([OnceLock<Queue>; 3]);

impl BackgroundWorkers {
    /// Runs `task` on `worker`, after all tasks that were queued there before it, and returns its result.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        worker: Worker,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WorkerError> {
        let queue = self.queue(worker);
        if worker == Worker::Reads && queue.waiting.load(Ordering::Relaxed) >= MAX_WAITING_READS {
            return Err(WorkerError::Busy);
        }
        let (done, waiting) = oneshot::channel();
        queue.push(Box::new(move || {
            // The caller may go away at any time. Then nobody needs the result.
            if !done.is_closed() {
                let _ = done.send(task());
            }
        }));
        waiting.await.map_err(|_| WorkerError::Interrupted)
    }

    /// Drops a value on `worker`: freeing thousands of allocations takes long.
    pub(crate) fn discard<T: Send + 'static>(&self, worker: Worker, value: T) {
        self.queue(worker).push(Box::new(move || drop(value)));
    }

    fn queue(&self, worker: Worker) -> &Queue {
        self.0[worker as usize].get_or_init(|| Queue::start(worker))
    }
}

impl Worker {
    /// Returns the name and the niceness of the worker's thread. When checks keep all cores busy, a thread with
    /// niceness 10 still gets about a tenth of a core, and a thread with niceness 19 about a hundredth.
    fn thread(self) -> (&'static str, i32) {
        match self {
            Self::Changes => ("rule-changes", 10),
            Self::Reads => ("rule-reads", 19),
            Self::Operators => ("operators", 10),
        }
    }
}

/// The queue of one worker.
#[derive(Debug)]
struct Queue {
    tasks: Sender<Task>,
    /// The number of tasks that have not finished yet.
    waiting: Arc<AtomicUsize>,
}

impl Queue {
    fn start(worker: Worker) -> Self {
        let (tasks, receiver) = channel::<Task>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let unfinished = Arc::clone(&waiting);
        let (name, niceness) = worker.thread();
        let started = thread::Builder::new().name(name.to_owned()).spawn(move || {
            lower_priority(niceness);
            for task in receiver {
                // A task that panics fails only its own request; the worker continues.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(task));
                unfinished.fetch_sub(1, Ordering::Relaxed);
            }
        });
        if let Err(error) = started {
            tracing::error!("server: cannot start thread {name} ({error}); requests that need it fail");
        }
        Self { tasks, waiting }
    }

    fn push(&self, task: Task) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // If the thread could not be started, the task is dropped here, and its caller gets `Interrupted`.
        let _ = self.tasks.send(task);
    }
}

/// Lowers the priority of the calling thread. A thread whose priority is lower already keeps it.
#[cfg(target_os = "linux")]
pub(crate) fn lower_priority(niceness: i32) {
    if rustix::process::getpriority_process(None).is_ok_and(|present| present < niceness) {
        let _ = rustix::process::setpriority_process(None, niceness);
    }
}

/// Does nothing: outside Linux, `setpriority` applies to the whole process, including the threads that
/// decide.
#[cfg(not(target_os = "linux"))]
pub(crate) fn lower_priority(_: i32) {}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_panic_fails_its_own_task_only() {
        let workers = BackgroundWorkers::default();
        for worker in [Worker::Changes, Worker::Reads] {
            assert_eq!(workers.run(worker, || 1).await, Ok(1));
            let panicked = workers.run(worker, || -> u32 { panic!("on purpose") });
            assert_eq!(panicked.await, Err(WorkerError::Interrupted));
            assert_eq!(workers.run(worker, || 2).await, Ok(2));
        }
    }

    #[tokio::test]
    async fn reads_neither_delay_changes_nor_pile_up() {
        let workers = Arc::new(BackgroundWorkers::default());
        let read = |task: Box<dyn FnOnce() + Send>| {
            let workers = Arc::clone(&workers);
            tokio::spawn(async move { workers.run(Worker::Reads, task).await })
        };
        let (release, released) = mpsc::channel::<()>();
        let mut reads = vec![read(Box::new(move || released.recv().unwrap_or(())))];
        reads.extend((1..MAX_WAITING_READS).map(|_| read(Box::new(|| ()))));
        while workers.queue(Worker::Reads).waiting.load(Ordering::Relaxed) < MAX_WAITING_READS {
            tokio::task::yield_now().await;
        }
        assert_eq!(workers.run(Worker::Reads, || ()).await, Err(WorkerError::Busy));
        assert_eq!(workers.run(Worker::Changes, || 1).await, Ok(1), "while a read runs and others wait");
        drop(release);
        for read in reads {
            assert_eq!(read.await.ok(), Some(Ok(())));
        }
    }

    /// Other tests have workers of their own, whose queues may be full.
    #[tokio::test]
    async fn workers_share_no_queue() {
        let (full, other) = (BackgroundWorkers::default(), BackgroundWorkers::default());
        let (release, released) = mpsc::channel::<()>();
        full.queue(Worker::Reads).push(Box::new(move || released.recv().unwrap_or(())));
        for _ in 1..MAX_WAITING_READS {
            full.discard(Worker::Reads, ());
        }
        assert_eq!(full.run(Worker::Reads, || ()).await, Err(WorkerError::Busy));
        assert_eq!(other.run(Worker::Reads, || 1).await, Ok(1));
        drop(release);
    }

    #[test]
    fn queued_tasks_run_although_their_workers_are_dropped() {
        let workers = BackgroundWorkers::default();
        let (tell, told) = mpsc::channel();
        workers.queue(Worker::Changes).push(Box::new(move || tell.send(()).unwrap_or(())));
        drop(workers);
        assert_eq!(told.recv(), Ok(()));
        assert_eq!(told.recv(), Err(mpsc::RecvError));
    }

    #[tokio::test]
    async fn a_task_whose_caller_has_gone_is_skipped() {
        let workers = BackgroundWorkers::default();
        let run = |task: Box<dyn FnOnce() + Send>| workers.run(Worker::Operators, task);
        let (release, released) = mpsc::channel::<()>();
        let mut running = Box::pin(run(Box::new(move || released.recv().unwrap_or(()))));
        assert_eq!((&mut running).now_or_never(), None);
        let (sender, ran) = mpsc::channel();
        // It is queued, and then nobody waits for it.
        assert_eq!(run(Box::new(move || sender.send(()).unwrap_or(()))).now_or_never(), None);
        drop(release);
        assert_eq!(running.await, Ok(()));
        assert_eq!(run(Box::new(|| ())).await, Ok(()));
        assert!(ran.try_recv().is_err());
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn only_the_workers_have_a_lower_priority() {
        let workers = BackgroundWorkers::default();
        let niceness = || rustix::process::getpriority_process(None).unwrap_or(i32::MAX);
        // Not always 0: the tests themselves may run with `nice`.
        let before = niceness();
        assert_eq!(workers.run(Worker::Changes, niceness).await, Ok(before.max(10)));
        assert_eq!(workers.run(Worker::Reads, niceness).await, Ok(before.max(19)));
        assert_eq!(niceness(), before);
    }
}
