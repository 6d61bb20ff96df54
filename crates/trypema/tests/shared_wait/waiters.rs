//! Several waiters: admitted in order and within the limit, and removed when dropped.

use std::sync::Arc;

use trypema::clock::Timestamp;
use trypema::strategy::{FixedWindow, TokenBucket};
use trypema_testkit::blocking::{runtime, wait_for};
use trypema_testkit::subject::HybridStrategy;

use super::scene::{Admitted, HOUR, Provider, Scene, TENTH, WINDOW, left, tenths};

/// All waiters of two processes wake for the same window. Having waited does not admit any of them beyond the
/// limit.
pub(crate) fn waiters_never_exceed_the_limit<P: Provider>() {
    const LIMIT: u64 = 10;
    const WAITERS: usize = 25;
    let scene = Scene::start();
    let instances = [scene.instance(), scene.instance()];
    let (limit, start) = (FixedWindow::limit(LIMIT, WINDOW), scene.now());
    let admitted = Arc::new(Admitted::default());
    let tasks: Vec<_> = instances
        .iter()
        .flat_map(|rl| (0..WAITERS).map(move |waiter| (rl, waiter)))
        .map(|(rl, waiter)| {
            let (admitted, wait) = (Arc::clone(&admitted), P::spawn::<FixedWindow>(rl, &limit, 1, HOUR));
            runtime().spawn(async move {
                wait.await.unwrap().unwrap();
                admitted.push(waiter);
            })
        })
        .collect();
    // The clock starts 40 s into a minute.
    let windows_since = |now: Timestamp| (now.as_micros() - start.as_micros() + 40_000_000) / 60_000_000;
    wait_for(scene.run_until(
        || admitted.count() == 2 * WAITERS,
        |now| {
            let most = LIMIT * (windows_since(now) + 1);
            assert!(admitted.count() as u64 <= most, "{} of {most}", admitted.count());
        },
    ));
    assert!(windows_since(scene.now()) >= 4, "fifty waiters need five windows of ten");
    tasks.into_iter().for_each(|task| wait_for(task).unwrap());
    assert!(scene.calls() <= 6 * 2 * WAITERS as u64, "{} calls", scene.calls());
}

/// The waiters of a process are admitted in the order of their arrival, with a few calls each.
pub(crate) fn first_come_is_first_served<P: Provider>() {
    const WAITERS: usize = 30;
    let scene = Scene::start();
    let (rl, limits, admitted) = (scene.instance(), tenths(1), Arc::new(Admitted::default()));
    scene.use_up::<P, TokenBucket>(&rl, &limits);
    let (start, before) = (scene.now(), scene.calls());
    let tasks = admitted.spawn_in_order::<P>(&rl, &limits, WAITERS);
    wait_for(scene.run_until(|| admitted.count() == WAITERS, |_| {}));
    assert_eq!(admitted.order(), (0..WAITERS).collect::<Vec<_>>());
    assert!(scene.now() >= start + TENTH * WAITERS as u32, "thirty tokens take three seconds");
    let calls = scene.calls() - before;
    assert!(calls <= 4 * WAITERS as u64, "{calls} calls for {WAITERS} waiters");
    tasks.into_iter().for_each(|task| wait_for(task).unwrap());
    assert_eq!(P::waiters(&rl), 0);
}

/// A dropped waiter spends nothing, and the next one moves up.
pub(crate) fn a_waiter_that_leaves_spends_nothing<P: Provider>() {
    for leaver in 0..3 {
        let scene = Scene::start();
        let (rl, limits, admitted) = (scene.instance(), tenths(4), Arc::new(Admitted::default()));
        let (start, _) = (scene.now(), scene.use_up::<P, TokenBucket>(&rl, &limits));
        let tasks = admitted.spawn_in_order::<P>(&rl, &limits, 3);
        wait_for(async {
            scene.asleep(start + HOUR).await;
            tasks[leaver].abort();
            while P::waiters(&rl) == 3 {
                tokio::task::yield_now().await;
            }
            scene.run_until(|| admitted.count() == 2, |_| {}).await;
        });
        let stayed: Vec<usize> = (0..3).filter(|waiter| *waiter != leaver).collect();
        assert_eq!(admitted.order(), stayed);
        assert_eq!(P::waiters(&rl), 0);
        assert_eq!(scene.clock.next_wake(), None, "somebody still sleeps");
        // Two of the refilled tokens are spent.
        let back = (scene.now().as_micros() - start.as_micros()) / TENTH.as_micros() as u64;
        assert_eq!(left(&rl, &limits), back - 2);
    }
}
