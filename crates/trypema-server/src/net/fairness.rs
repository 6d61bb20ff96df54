//! Keeps a peer with many connections from delaying the others.
//!
//! The runtime polls tasks in the order in which they become ready. If a thousand connections of one peer become ready at once,
//! a request of another peer would wait for all of them. So the connections of a crowded peer take turns: only a few are polled at
//! a time, and the next one is woken when a poll ends. It joins the end of the run queue, behind any other task that is ready.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// A peer with more connections than this is crowded. Clients that share a pool of connections have fewer.
pub(super) const CROWD: usize = 128;

/// Turns for the connections of crowded peers: one processor stays free for the others.
pub(super) fn turns() -> Arc<Semaphore> {
    let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Arc::new(Semaphore::new(processors.saturating_sub(1).max(1)))
}

/// Runs the task of a connection, which waits for one of the turns whenever `is_crowded` says so of its peer.
pub(super) fn take_turns(
    turns: Arc<Semaphore>,
    is_crowded: impl Fn() -> bool,
    task: impl Future<Output = ()>,
) -> impl Future<Output = ()> {
    // On the heap: pinned in an async function, a task would take its size twice.
    let mut task = Box::pin(task);
    let mut waiting = None;
    poll_fn(move |context| {
        if waiting.is_none() && !is_crowded() {
            return task.as_mut().poll(context);
        }
        let turn = ready!(poll_turn(&turns, &mut waiting, context));
        let polled = task.as_mut().poll(context);
        drop(turn);
        // A thread that is never idle looks to the kernel like one that may use up its time slice of some milliseconds, while the
        // thread that has a request of another peer waits for the same processor.
        thread::yield_now();
        polled
    })
}

type Acquire = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// Waits for a turn, in the order of those who wait. The semaphore is never closed, so there is no error to tell.
fn poll_turn(
    turns: &Arc<Semaphore>,
    waiting: &mut Option<Acquire>,
    context: &mut Context<'_>,
) -> Poll<Option<OwnedSemaphorePermit>> {
    if waiting.is_none()
        && let Ok(turn) = Arc::clone(turns).try_acquire_owned()
    {
        return Poll::Ready(Some(turn));
    }
    let acquire = waiting.get_or_insert_with(|| Box::pin(Arc::clone(turns).acquire_owned()));
    let turn = ready!(acquire.as_mut().poll(context));
    *waiting = None;
    Poll::Ready(turn.ok())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::{JoinSet, yield_now};

    use super::*;

    #[tokio::test]
    async fn only_connections_of_crowded_peers_wait_for_a_turn() {
        let turns = Arc::new(Semaphore::new(1));
        let taken = Arc::clone(&turns).acquire_owned().await.unwrap();
        take_turns(Arc::clone(&turns), || false, async {}).await;
        let crowded = tokio::spawn(take_turns(Arc::clone(&turns), || true, async {}));
        let ended = tokio::spawn(take_turns(Arc::clone(&turns), || true, async {}));
        for _ in 0..100 {
            yield_now().await;
        }
        assert!(!crowded.is_finished() && !ended.is_finished(), "the only turn is taken");
        ended.abort();
        drop(taken);
        crowded.await.unwrap();
        assert_eq!(
            turns.available_permits(),
            1,
            "a turn ends with the poll, and one that is not wanted any more is passed on"
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_more_are_polled_at_a_time_than_there_are_turns() {
        let (turns, polled, most) = (Arc::new(Semaphore::new(2)), AtomicUsize::new(0), AtomicUsize::new(0));
        let counts = Arc::new((polled, most));
        let mut tasks = JoinSet::new();
        for _ in 0..200 {
            let counts = Arc::clone(&counts);
            tasks.spawn(take_turns(Arc::clone(&turns), || true, async move {
                for _ in 0..20 {
                    let (polled, most) = &*counts;
                    most.fetch_max(polled.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::hint::black_box((0..1_000).sum::<u64>());
                    polled.fetch_sub(1, Ordering::SeqCst);
                    yield_now().await;
                }
            }));
        }
        tasks.join_all().await;
        assert!((1..=2).contains(&counts.1.load(Ordering::SeqCst)), "{counts:?}");
        assert_eq!(turns.available_permits(), 2);
    }
}
