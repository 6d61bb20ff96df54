//! Serves the connections of crowded peers on threads of low priority, so that they do not delay the other peers.
//!
//! Tokio polls tasks in the order in which they become ready. If a thousand connections of one peer become ready at once, a request
//! of another peer waits for all of them. If they merely took turns, one worker thread would still be busy all the time, and the
//! kernel, to which all worker threads are equal, would let the other one wait for milliseconds. So there are two runtimes: while
//! its peer is crowded, the task of a connection runs on threads that the kernel prefers to interrupt, and one processor is left
//! to the others.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::thread;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::background_worker::lower_priority;

/// A peer with more connections than this is crowded. Clients that share a pool of connections have fewer.
pub(super) const CROWDED_CONNECTIONS: usize = 128;

/// The niceness of the threads for crowded peers. At 10, Linux would still give such a thread about a tenth of a processor that
/// another thread keeps busy.
const NICENESS: i32 = 19;

type ConnectionTask = Pin<Box<dyn Future<Output = ()> + Send>>;
type IsCrowded = Box<dyn Fn() -> bool + Send>;

/// The runtime for the connections of crowded peers, started by the first of them.
#[derive(Debug, Default)]
pub(super) struct CrowdRuntime(OnceLock<Option<Runtime>>);

impl CrowdRuntime {
    /// Registers a socket with the runtime for crowded peers instead of the main runtime. Otherwise the threads of the main runtime would
    /// be busy for milliseconds whenever a thousand sockets become ready at once.
    pub(super) fn register(&self, stream: TcpStream) -> io::Result<TcpStream> {
        let Some(runtime) = self.handle() else { return Ok(stream) };
        let stream = stream.into_std()?;
        let _context = runtime.enter();
        TcpStream::from_std(stream)
    }

    /// Returns the runtime, or `None` if its threads cannot be started.
    fn handle(&self) -> Option<&Handle> {
        self.0.get_or_init(start).as_ref().map(Runtime::handle)
    }
}

impl Drop for CrowdRuntime {
    fn drop(&mut self) {
        // Dropping a runtime waits for its threads, and panics inside another runtime.
        if let Some(runtime) = self.0.take().flatten() {
            runtime.shutdown_background();
        }
    }
}

fn start() -> Option<Runtime> {
    let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let started = Builder::new_multi_thread()
        .worker_threads(processors.saturating_sub(1).max(1))
        .thread_name("crowded-peers")
        .on_thread_start(|| lower_priority(NICENESS))
        .enable_io()
        .build();
    started
        .inspect_err(|error| {
            tracing::error!(
                "net: cannot start threads for peers with many connections ({error}); such peers may delay others"
            );
        })
        .ok()
}

/// A connection's task with the runtimes that it moves between.
struct MovingTask {
    /// The runtime of the service, which also runs timers.
    main: Handle,
    crowd: Arc<CrowdRuntime>,
    is_crowded: IsCrowded,
    task: ConnectionTask,
}

/// Spawns the task of a connection on the current runtime. While `is_crowded` returns `true`, the task runs on the runtime for crowded
/// peers.
pub(super) fn spawn(
    crowd: Arc<CrowdRuntime>,
    is_crowded: impl Fn() -> bool + Send + 'static,
    task: impl Future<Output = ()> + Send + 'static,
) {
    let (main, is_crowded) = (Handle::current(), Box::new(is_crowded));
    MovingTask { main, crowd, is_crowded, task: Box::pin(task) }.spawn();
}

impl MovingTask {
    /// Spawns the task on the runtime where it belongs now. It moves once it belongs to the other one.
    fn spawn(self) {
        let is_on_crowd = self.belongs_to_crowd();
        let (main, crowd) = (self.main.clone(), Arc::clone(&self.crowd));
        let runtime = if is_on_crowd { crowd.handle() } else { None }.unwrap_or(&main).clone();
        let mut task = Some(self);
        runtime.spawn(poll_fn(move |context| {
            let Some(moving) = &mut task else { return Poll::Ready(()) };
            if moving.belongs_to_crowd() == is_on_crowd {
                // Timers, and tasks that others share, such as the one that sends calls to Redis, belong to the main runtime.
                let _context = is_on_crowd.then(|| main.enter());
                return moving.task.as_mut().poll(context);
            }
            task.take().into_iter().for_each(Self::spawn);
            Poll::Ready(())
        }));
    }

    fn belongs_to_crowd(&self) -> bool {
        (self.is_crowded)() && self.crowd.handle().is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::mpsc::unbounded_channel;
    use tokio::task::yield_now;

    use super::*;

    /// A connection moves to the threads for crowded peers, and back; tasks that it spawns stay on the main runtime.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_connection_runs_on_other_threads_while_its_peer_is_crowded() {
        let crowd = Arc::new(CrowdRuntime::default());
        let is_crowded = Arc::new(AtomicBool::new(false));
        let (sender, mut threads) = unbounded_channel();
        let (task_is_crowded, read_crowded) = (Arc::clone(&is_crowded), Arc::clone(&is_crowded));
        spawn(Arc::clone(&crowd), move || read_crowded.load(Ordering::SeqCst), async move {
            for crowded in [false, true, false] {
                task_is_crowded.store(crowded, Ordering::SeqCst);
                yield_now().await;
                let of_spawned = tokio::spawn(async { thread::current().name().map(str::to_owned) });
                let of_connection = thread::current().name().map(str::to_owned);
                let sent = sender.send((crowded, of_connection, of_spawned.await.ok().flatten()));
                assert!(sent.is_ok());
            }
        });
        for _ in 0..3 {
            let (crowded, of_connection, of_spawned) = threads.recv().await.unwrap();
            assert_eq!(of_connection.as_deref() == Some("crowded-peers"), crowded);
            assert_ne!(of_spawned.as_deref(), Some("crowded-peers"));
        }
        assert!(threads.recv().await.is_none(), "the task has ended");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_threads_for_crowded_peers_have_a_low_priority() {
        // Not always 0: the tests themselves may run with `nice`.
        let own = rustix::process::getpriority_process(None);
        let crowd = CrowdRuntime::default();
        let priority = crowd.handle().unwrap().spawn(async { rustix::process::getpriority_process(None) });
        assert_eq!(priority.await.unwrap(), Ok(NICENESS));
        assert_eq!(rustix::process::getpriority_process(None), own, "other threads keep theirs");
    }
}
