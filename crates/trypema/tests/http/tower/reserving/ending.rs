//! The ways in which a response ends.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::atomic::{AtomicU16, Ordering};
use std::task::{Context, Waker};

use http::{Request, Response};
use http_body_util::BodyExt;
use tower::{Layer, ServiceExt, service_fn};

use super::{ESTIMATE, Frames, Scene, on_both_providers, open, status};
use crate::tower::scene::request;

/// One slot is held, and the estimate is counted.
const HELD: [u64; 2] = [0, 1_000 - ESTIMATE];

/// The slot is free, and the estimate stays counted.
const ENDED: [u64; 2] = [1, 1_000 - ESTIMATE];

on_both_providers!(
    a_body_holds_its_slot_to_its_end,
    a_body_that_is_dropped_midway,
    a_body_that_fails,
    a_response_that_is_dropped_unread,
    a_future_that_is_dropped,
    a_service_that_fails,
    a_service_that_panics,
);

async fn a_body_holds_its_slot_to_its_end(scene: &Scene) {
    let mut open = open(scene.layer()).await;
    scene.assert_left(HELD).await;
    open.frames.send(Ok("one")).unwrap();
    let frame = open.response.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "one");
    scene.assert_left(HELD).await;
    assert_eq!(status(scene.layer()).await, 429);
    drop(open.frames);
    assert!(open.response.body_mut().frame().await.is_none());
    scene.assert_left(ENDED).await;
    assert_eq!(status(scene.layer()).await, 200);
    assert!(open.response.body_mut().frame().await.is_none());
    scene.assert_left([1, 1_000 - 2 * ESTIMATE]).await;
}

async fn a_body_that_is_dropped_midway(scene: &Scene) {
    let mut open = open(scene.layer()).await;
    open.frames.send(Ok("one")).unwrap();
    open.response.body_mut().frame().await.unwrap().unwrap();
    scene.assert_left(HELD).await;
    drop(open.response);
    scene.assert_left(ENDED).await;
}

async fn a_body_that_fails(scene: &Scene) {
    let mut open = open(scene.layer()).await;
    open.frames.send(Err("broken")).unwrap();
    assert_eq!(open.response.body_mut().frame().await.unwrap().unwrap_err(), "broken");
    scene.assert_left(ENDED).await;
}

async fn a_response_that_is_dropped_unread(scene: &Scene) {
    let open = open(scene.layer()).await;
    scene.assert_left(HELD).await;
    drop(open);
    scene.assert_left(ENDED).await;
}

async fn a_future_that_is_dropped(scene: &Scene) {
    let never = service_fn(|_: Request<()>| pending::<Result<Response<Frames>, Infallible>>());
    let mut response = Box::pin(scene.layer().build().unwrap().layer(never).oneshot(request()));
    let poll_once = std::future::poll_fn(|cx| {
        assert!(response.as_mut().poll(cx).is_pending());
        std::task::Poll::Ready(())
    });
    poll_once.await;
    // Until Redis has responded, the reservation is not made.
    while scene.left().await != HELD {
        tokio::task::yield_now().await;
    }
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..100 {
        assert!(pin!(&mut response).poll(&mut context).is_pending());
        tokio::task::yield_now().await;
    }
    scene.assert_left(HELD).await;
    drop(response);
    scene.assert_left(ENDED).await;
}

async fn a_service_that_fails(scene: &Scene) {
    let broken = service_fn(|_: Request<()>| async { Err::<Response<Frames>, _>("broken") });
    let failed = scene.layer().build().unwrap().layer(broken).oneshot(request()).await;
    assert_eq!(failed.map(|_| ()).unwrap_err(), "broken");
    scene.assert_left(ENDED).await;
}

/// In its future, or before there is one.
async fn a_service_that_panics(scene: &Scene) {
    static SPENT: AtomicU16 = AtomicU16::new(0);
    SPENT.store(0, Ordering::SeqCst);
    let in_future = service_fn(|_: Request<()>| async {
        if SPENT.fetch_add(1, Ordering::SeqCst) < 100 {
            panic!("in the future");
        }
        Ok::<Response<Frames>, Infallible>(Response::new(Frames(tokio::sync::mpsc::unbounded_channel().1)))
    });
    fn panics(_: Request<()>) -> std::future::Ready<Result<Response<Frames>, Infallible>> {
        panic!("in the call");
    }
    let layer = scene.layer().build().unwrap();
    let joined = tokio::spawn(layer.layer(in_future).oneshot(request())).await;
    assert!(joined.is_err_and(|error| error.is_panic()));
    scene.assert_left(ENDED).await;
    let joined = tokio::spawn(layer.layer(service_fn(panics)).oneshot(request())).await;
    assert!(joined.is_err_and(|error| error.is_panic()));
    scene.assert_left([1, 1_000 - 2 * ESTIMATE]).await;
}
