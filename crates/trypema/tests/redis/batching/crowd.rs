//! Futures that are polled by hand, so that a test decides the order of polls.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::ThreadId;
use std::time::Duration;

/// The time after which a crowd without any wake-up has lost one.
const PATIENCE: Duration = Duration::from_secs(30);

/// Callers that wait together, started in order. One thread polls them, inside an entered Tokio runtime.
/// Connections run on other threads.
pub(crate) struct Crowd<'a, T> {
    callers: Vec<Option<Pin<Box<dyn Future<Output = T> + 'a>>>>,
    results: Vec<Option<T>>,
    woken: Arc<Woken>,
}

/// The woken callers. Those that were woken by another caller come first, so that none overtakes them.
struct Woken {
    thread: ThreadId,
    lists: Mutex<Lists>,
    changed: Condvar,
}

#[derive(Default)]
struct Lists {
    by_callers: VecDeque<usize>,
    by_connection: VecDeque<usize>,
}

struct CallerWaker {
    caller: usize,
    woken: Arc<Woken>,
}

impl Wake for CallerWaker {
    fn wake(self: Arc<Self>) {
        let mut lists = self.woken.lists.lock().unwrap();
        if std::thread::current().id() == self.woken.thread {
            lists.by_callers.push_back(self.caller);
        } else {
            lists.by_connection.push_back(self.caller);
        }
        self.woken.changed.notify_one();
    }
}

impl<'a, T> Crowd<'a, T> {
    pub(crate) fn new() -> Self {
        let thread = std::thread::current().id();
        let woken = Woken { thread, lists: Mutex::default(), changed: Condvar::new() };
        Self { callers: Vec::new(), results: Vec::new(), woken: Arc::new(woken) }
    }

    /// Adds a caller and polls it once. Returns its index.
    pub(crate) fn add(&mut self, future: impl Future<Output = T> + 'a) -> usize {
        let caller = self.callers.len();
        self.callers.push(Some(Box::pin(future)));
        self.results.push(None);
        self.poll(caller);
        caller
    }

    /// Drops a caller.
    pub(crate) fn cancel(&mut self, caller: usize) {
        self.callers[caller] = None;
    }

    /// Waits for the next woken caller.
    pub(crate) fn next_woken(&self) -> usize {
        let lists = self.woken.lists.lock().unwrap();
        let is_nobody = |lists: &mut Lists| lists.by_callers.is_empty() && lists.by_connection.is_empty();
        let (mut lists, timeout) = self.woken.changed.wait_timeout_while(lists, PATIENCE, is_nobody).unwrap();
        assert!(!timeout.timed_out(), "nobody is woken any more");
        lists.by_callers.pop_front().or_else(|| lists.by_connection.pop_front()).unwrap()
    }

    /// Polls a caller. Returns whether it has its result.
    pub(crate) fn poll(&mut self, caller: usize) -> bool {
        let waker = Waker::from(Arc::new(CallerWaker { caller, woken: Arc::clone(&self.woken) }));
        let Some(future) = &mut self.callers[caller] else { return self.results[caller].is_some() };
        if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            self.results[caller] = Some(result);
            self.callers[caller] = None;
        }
        self.results[caller].is_some()
    }

    /// Whether a caller has its result, which it may have had when it was added.
    pub(crate) fn has_result(&self, caller: usize) -> bool {
        self.results[caller].is_some()
    }

    /// Polls woken callers until all have their results. The result of a dropped caller is `None`.
    pub(crate) fn finish(mut self) -> Vec<Option<T>> {
        while self.callers.iter().any(Option::is_some) {
            let caller = self.next_woken();
            self.poll(caller);
        }
        self.results
    }
}
