//! A small executor on a manual clock: tasks run when they are woken, and the clock advances when all of them
//! sleep.

#![allow(clippy::expect_used, reason = "a test whose tasks hang has failed")]

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use trypema::clock::{Clock, ManualClock, Timestamp};

/// Runs tasks and records the time at which each one ended.
pub(crate) struct Executor<'a, T> {
    clock: Arc<ManualClock>,
    tasks: Vec<Task<'a, T>>,
    woken: Arc<Woken>,
    ended: Vec<Ended<T>>,
}

/// A finished task.
#[derive(Debug)]
pub(crate) struct Ended<T> {
    /// The index of the task, in spawn order.
    pub(crate) task: usize,
    pub(crate) at: Timestamp,
    pub(crate) output: T,
}

struct Task<'a, T> {
    future: Option<Pin<Box<dyn Future<Output = T> + 'a>>>,
    waker: Waker,
}

type Woken = Mutex<VecDeque<usize>>;

struct TaskWaker {
    task: usize,
    woken: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        woken.push_back(self.task);
    }
}

impl<'a, T> Executor<'a, T> {
    pub(crate) fn new(clock: &Arc<ManualClock>) -> Self {
        Self { clock: Arc::clone(clock), tasks: Vec::new(), woken: Arc::default(), ended: Vec::new() }
    }

    /// Adds a task and polls it once. Returns its index.
    pub(crate) fn spawn(&mut self, future: impl Future<Output = T> + 'a) -> usize {
        let task = self.tasks.len();
        let woken = Arc::clone(&self.woken);
        self.tasks
            .push(Task { future: Some(Box::pin(future)), waker: Arc::new(TaskWaker { task, woken }).into() });
        self.poll(task);
        task
    }

    /// Drops a task before it is finished.
    pub(crate) fn cancel(&mut self, task: usize) {
        self.tasks[task].future = None;
    }

    /// Polls the woken tasks in order, until none is left. The clock stands still.
    pub(crate) fn run_woken(&mut self) {
        while let Some(task) = self.next_woken() {
            self.poll(task);
        }
    }

    /// Runs until all tasks have ended, moving the clock from one wake-up to the next.
    pub(crate) fn run(&mut self) {
        self.run_woken();
        while self.tasks.iter().any(|task| task.future.is_some()) {
            let next = self.clock.next_wake();
            self.clock.set(next.expect("a task waits for nothing"));
            self.run_woken();
        }
    }

    /// The finished tasks, in the order in which they ended.
    pub(crate) fn ended(&self) -> &[Ended<T>] {
        &self.ended
    }

    fn next_woken(&self) -> Option<usize> {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        woken.pop_front()
    }

    fn poll(&mut self, task: usize) {
        let Task { future, waker } = &mut self.tasks[task];
        let Some(running) = future else { return };
        if let Poll::Ready(output) = running.as_mut().poll(&mut Context::from_waker(waker)) {
            *future = None;
            let at = self.clock.now();
            self.ended.push(Ended { task, at, output });
        }
    }
}
