//! Requests that wait for a slot.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use trypema::clock::Clock;

use super::{ESTIMATE, Scene, on_both_providers, open, status};

on_both_providers!(waiters_are_served_in_order, patience_ends, a_waiter_that_goes_away_leaves_the_queue);

/// Waits until the requests that were sent wait. The first of a queue tries again after a second, or somewhat
/// later if other processes may do so, too. The others call nobody before it is their turn.
async fn until_waiting(scene: &Scene) {
    let is_soon = |next| next > scene.clock.now() && next <= scene.clock.now() + Duration::from_millis(1_250);
    let first = async {
        while !scene.clock.next_wake().is_some_and(is_soon) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::FAR_TOO_LONG, first).await.unwrap();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

async fn waiters_are_served_in_order(scene: &Scene) {
    let first = open(scene.layer()).await;
    let (order, mut arrived) = mpsc::unbounded_channel();
    for number in 0..3 {
        let (layer, order) = (scene.layer().wait(Duration::from_secs(3_600)), order.clone());
        tokio::spawn(async move {
            let response = open(layer).await;
            assert_eq!(response.response.status(), 200);
            order.send((number, response)).unwrap();
        });
        until_waiting(scene).await;
    }
    assert!(arrived.try_recv().is_err());
    let mut holding = first;
    for expected in 0..3 {
        drop(holding);
        let (number, next) = arrived.recv().await.unwrap();
        assert_eq!(number, expected);
        assert!(arrived.try_recv().is_err());
        holding = next;
    }
    drop(holding);
    scene.assert_left([1, 1_000 - 4 * ESTIMATE]).await;
}

async fn patience_ends(scene: &Scene) {
    let holding = open(scene.layer()).await;
    let waiting = tokio::spawn(status(scene.layer().wait(Duration::from_secs(5))));
    until_waiting(scene).await;
    for _ in 0..4 {
        scene.clock.advance(Duration::from_secs(1));
        until_waiting(scene).await;
        assert!(!waiting.is_finished());
    }
    scene.clock.advance(Duration::from_secs(1));
    assert_eq!(waiting.await.unwrap(), 429);
    drop(holding);
    scene.assert_left([1, 1_000 - ESTIMATE]).await;
}

async fn a_waiter_that_goes_away_leaves_the_queue(scene: &Scene) {
    let holding = open(scene.layer()).await;
    let patient = || scene.layer().wait(Duration::from_secs(3_600));
    let (cancelled, next) = (tokio::spawn(status(patient())), Arc::new(tokio::sync::Notify::new()));
    until_waiting(scene).await;
    let (layer, is_served) = (patient(), next.clone());
    let waiting = tokio::spawn(async move {
        let status = status(layer).await;
        is_served.notify_one();
        status
    });
    until_waiting(scene).await;
    cancelled.abort();
    assert!(cancelled.await.unwrap_err().is_cancelled());
    until_waiting(scene).await;
    assert!(!waiting.is_finished());
    drop(holding);
    next.notified().await;
    assert_eq!(waiting.await.unwrap(), 200);
    scene.assert_left([1, 1_000 - 2 * ESTIMATE]).await;
}

/// A release wakes only the first waiter. Two at the same moment are enough for two waiters all the same.
#[tokio::test]
async fn releases_at_the_same_time_admit_as_many_waiters() {
    let scene = Scene::local(&super::RULES.replace("limit: 1,", "limit: 3,"));
    let holding = [open(scene.layer()).await, open(scene.layer()).await, open(scene.layer()).await];
    let waiters: Vec<_> =
        (0..3).map(|_| tokio::spawn(open(scene.layer().wait(Duration::from_secs(3_600))))).collect();
    until_waiting(&scene).await;
    drop(holding);
    for waiter in waiters {
        let admitted = tokio::time::timeout(super::FAR_TOO_LONG, waiter).await.unwrap().unwrap();
        assert_eq!(admitted.response.status(), 200);
        std::mem::forget(admitted);
    }
    assert_eq!(scene.left().await[0], 0);
}
