//! Work that nobody in particular does: whoever calls meanwhile drives it on.
//!
//! The library starts no tasks of its own. A dial or a look at the cluster's shape must outlive the caller
//! that began it, whose deadline may be shorter: the errand stays where it is, and the next caller goes on
//! with it.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// At most one piece of work at a time, driven by all who join it.
pub(super) struct Errand {
    /// Also in `state`; here so that looking costs no lock.
    is_under_way: AtomicBool,
    state: Mutex<State>,
    drivers: Arc<Drivers>,
}

struct State {
    step: Step,
    /// Which piece of work this is, so that who waits for one does not wait for the next as well.
    number: u64,
}

enum Step {
    Idle,
    Waiting(Work),
    /// One of the drivers has it in hand.
    InHand,
}

impl Errand {
    pub(super) fn new() -> Self {
        Self {
            is_under_way: AtomicBool::new(false),
            state: Mutex::new(State { step: Step::Idle, number: 0 }),
            drivers: Arc::new(Drivers::default()),
        }
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.is_under_way.load(Ordering::Acquire)
    }

    /// Whether work is under way that nobody drives at present.
    pub(super) fn is_left_alone(&self) -> bool {
        self.is_under_way() && self.drivers.list().wakers.is_empty()
    }

    /// Begins `work`, unless some is under way. It moves only while somebody drives it.
    pub(super) fn begin(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut state = self.state();
        if matches!(state.step, Step::Idle) {
            state.step = Step::Waiting(Box::pin(work));
            self.is_under_way.store(true, Ordering::Release);
        }
    }

    /// Drives the work that is under way to its end.
    pub(super) async fn join(&self) {
        if !self.is_under_way() {
            return;
        }
        let driver = Driver { errand: self, place: self.drivers.enter(), number: self.state().number };
        poll_fn(|context| driver.poll(context)).await;
    }

    /// Drives the work that is under way while `future` runs, and no longer than that.
    pub(super) async fn alongside<F: Future>(&self, future: F) -> F::Output {
        if !self.is_under_way() {
            return future.await;
        }
        let mut future = pin!(future);
        let mut join = pin!(self.join());
        let mut is_joined = false;
        poll_fn(|context| {
            is_joined = is_joined || join.as_mut().poll(context).is_ready();
            future.as_mut().poll(context)
        })
        .await
    }

    fn poll(&self) {
        let mut work = {
            let mut state = self.state();
            match std::mem::replace(&mut state.step, Step::InHand) {
                Step::Waiting(work) => work,
                other => {
                    state.step = other;
                    return;
                }
            }
        };
        let waker = Waker::from(Arc::clone(&self.drivers));
        // Work that is driven on outside the async runtime it began in may panic there. That ends the work,
        // not the caller: the next piece begins afresh.
        let poll = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut Context::from_waker(&waker))));
        let mut state = self.state();
        if matches!(poll, Ok(Poll::Pending)) {
            state.step = Step::Waiting(work);
            return;
        }
        state.step = Step::Idle;
        state.number += 1;
        self.is_under_way.store(false, Ordering::Release);
        drop(state);
        waker.wake();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who waits for the work and drives it meanwhile.
struct Driver<'e> {
    errand: &'e Errand,
    place: u64,
    number: u64,
}

impl Driver<'_> {
    fn poll(&self, context: &Context<'_>) -> Poll<()> {
        // First, so that a wake-up during the poll reaches this driver too.
        self.errand.drivers.register(self.place, context.waker());
        self.errand.poll();
        let state = self.errand.state();
        let is_done = state.number != self.number || matches!(state.step, Step::Idle);
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        // This one may have been woken and cannot drive any more: the others look for themselves.
        self.errand.drivers.leave(self.place).into_iter().for_each(Waker::wake);
    }
}

/// Wakes all drivers whenever the work can go on.
#[derive(Default)]
struct Drivers(Mutex<List>);

#[derive(Default)]
struct List {
    next_place: u64,
    wakers: Vec<(u64, Option<Waker>)>,
}

impl Drivers {
    fn enter(&self) -> u64 {
        let mut list = self.list();
        let place = list.next_place;
        list.next_place += 1;
        list.wakers.push((place, None));
        place
    }

    fn register(&self, place: u64, waker: &Waker) {
        let mut list = self.list();
        // Places only grow, so the list is in order.
        if let Ok(index) = list.wakers.binary_search_by_key(&place, |(other, _)| *other) {
            list.wakers[index].1 = Some(waker.clone());
        }
    }

    fn leave(&self, place: u64) -> Vec<Waker> {
        let mut list = self.list();
        list.wakers.retain(|(other, _)| *other != place);
        list.take()
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl List {
    fn take(&mut self) -> Vec<Waker> {
        self.wakers.iter_mut().filter_map(|(_, waker)| waker.take()).collect()
    }
}

impl Wake for Drivers {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let wakers = self.list().take();
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::sync::atomic::AtomicUsize;

    /// Work that ends at the third step, and asks to be driven on after each.
    fn three_steps() -> impl Future<Output = ()> + Send + 'static {
        let mut steps = 0;
        poll_fn(move |context| {
            steps += 1;
            if steps == 3 {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll_once<F: Future>(future: Pin<&mut F>, count: &Arc<Count>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(count))))
    }

    #[test]
    fn work_outlives_the_driver_that_leaves() {
        let (errand, count) = (Errand::new(), Arc::new(Count::default()));
        errand.begin(three_steps());
        for _ in 0..2 {
            assert!(errand.is_left_alone());
            let mut join = Box::pin(errand.join());
            assert!(poll_once(join.as_mut(), &count).is_pending());
            assert!(!errand.is_left_alone());
        }
        assert!(poll_once(pin!(errand.join()), &count).is_ready());
        assert!(!errand.is_under_way());
        assert!(poll_once(pin!(errand.join()), &count).is_ready());
    }

    #[test]
    fn those_who_stay_are_woken_when_one_leaves_and_when_the_work_ends() {
        let (errand, counts) = (Errand::new(), [(); 2].map(|()| Arc::new(Count::default())));
        let wakes = || [0, 1].map(|index: usize| counts[index].0.load(Ordering::Relaxed));
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        let end = move |_: &mut Context<'_>| {
            if seen.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending }
        };
        errand.begin(poll_fn(end));
        let (mut first, mut second) = (Box::pin(errand.join()), Box::pin(errand.join()));
        assert!(poll_once(first.as_mut(), &counts[0]).is_pending());
        assert!(poll_once(second.as_mut(), &counts[1]).is_pending());
        assert_eq!(wakes(), [0, 0]);
        let mut third = Box::pin(errand.join());
        assert!(poll_once(third.as_mut(), &counts[1]).is_pending());
        drop(third);
        assert_eq!(wakes(), [1, 1]);
        assert!(poll_once(first.as_mut(), &counts[0]).is_pending());
        assert!(poll_once(second.as_mut(), &counts[1]).is_pending());
        is_over.store(true, Ordering::Relaxed);
        assert!(poll_once(first.as_mut(), &counts[0]).is_ready());
        assert_eq!(wakes()[1], 2);
        // The next piece of work is not what the second one waited for.
        errand.begin(pending());
        assert!(poll_once(second.as_mut(), &counts[1]).is_ready());
    }

    #[test]
    fn work_moves_on_alongside_a_call_and_does_not_delay_it() {
        let (errand, count) = (Errand::new(), Arc::new(Count::default()));
        errand.begin(three_steps());
        for _ in 0..3 {
            assert_eq!(poll_once(pin!(errand.alongside(async { 7 })), &count), Poll::Ready(7));
        }
        assert!(!errand.is_under_way());
        errand.begin(pending());
        errand.begin(async { panic!("there is work under way already") });
        assert_eq!(poll_once(pin!(errand.alongside(async { 7 })), &count), Poll::Ready(7));
    }

    #[test]
    fn a_panic_ends_the_work_and_not_its_driver() {
        let (errand, count) = (Errand::new(), Arc::new(Count::default()));
        errand.begin(async { panic!("on purpose") });
        assert!(poll_once(pin!(errand.join()), &count).is_ready());
        errand.begin(async {});
        assert!(poll_once(pin!(errand.join()), &count).is_ready());
    }
}
