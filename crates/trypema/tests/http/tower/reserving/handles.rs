//! Handlers set the cost at which the reservation is settled.

use std::convert::Infallible;

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower::{Layer, ServiceExt, service_fn};
use trypema::TrypemaError;
use trypema::tower::{ReservationHandle, ReservingLayer};

use super::{ESTIMATE, Frames, Scene, on_both_providers};
use crate::tower::scene::{answer_of, request, to};

on_both_providers!(
    a_handler_settles_at_the_real_cost,
    what_was_set_last_counts,
    a_stream_is_settled_at_what_was_sent,
    failures_of_the_server_cost_nothing,
    a_skipped_request_has_no_handle,
);

/// Sends a request to a handler that gets the handle.
async fn handled(layer: &ReservingLayer, handle: impl Fn(ReservationHandle) + Clone) {
    let service = service_fn(move |mut request: Request<()>| {
        handle(request.extensions_mut().remove().unwrap());
        async { Ok::<_, Infallible>(Response::new(Full::from("done"))) }
    });
    assert_eq!(answer_of(layer.layer(service), request()).await.status, 200);
}

async fn a_handler_settles_at_the_real_cost(scene: &Scene) {
    let layer = scene.layer().build().unwrap();
    let mut left = 1_000;
    for cost in [30, ESTIMATE, 250, 0] {
        handled(&layer, |handle| handle.settle_at(&[("tokens", cost)]).unwrap()).await;
        left -= cost;
        scene.assert_left([1, left]).await;
    }
}

async fn what_was_set_last_counts(scene: &Scene) {
    let layer = scene.layer().build().unwrap();
    handled(&layer, |handle| {
        handle.release();
        handle.settle_at(&[("tokens", 7)]).unwrap();
        handle.clone().settle_at(&[("tokens", 8), ("requests", 1)]).unwrap();
        handle.settle_at(&[("requests", 1)]).unwrap();
        let unknown = handle.settle_at(&[("tokens", 500), ("tokns", 1)]);
        assert!(matches!(unknown, Err(TrypemaError::InvalidRequest { .. })), "{unknown:?}");
    })
    .await;
    scene.assert_left([1, 992]).await;
    handled(&layer, |handle| {
        handle.settle_at(&[("tokens", 7)]).unwrap();
        handle.release();
    })
    .await;
    scene.assert_left([1, 992]).await;
    // After the response, a handle has no effect.
    let kept = std::sync::Arc::new(std::sync::Mutex::new(None));
    handled(&layer, |handle| *kept.lock().unwrap() = Some(handle)).await;
    scene.assert_left([1, 892]).await;
    let kept = kept.lock().unwrap().take().unwrap();
    kept.release();
    kept.settle_at(&[("tokens", 1)]).unwrap();
    scene.assert_left([1, 892]).await;
}

async fn a_stream_is_settled_at_what_was_sent(scene: &Scene) {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    let parts = std::sync::Arc::new(std::sync::Mutex::new((Some(receiver), None)));
    let shared = parts.clone();
    let service = service_fn(move |mut request: Request<()>| {
        let mut parts = shared.lock().unwrap();
        parts.1 = request.extensions_mut().remove::<ReservationHandle>();
        let body = Frames(parts.0.take().unwrap());
        async { Ok::<_, Infallible>(Response::new(body)) }
    });
    let Ok(mut response) = scene.layer().build().unwrap().layer(service).oneshot(request()).await;
    let handle = parts.lock().unwrap().1.take().unwrap();
    for sent in 1..=3 {
        sender.send(Ok("token")).unwrap();
        response.body_mut().frame().await.unwrap().unwrap();
        handle.settle_at(&[("tokens", sent)]).unwrap();
    }
    scene.assert_left([0, 1_000 - ESTIMATE]).await;
    drop(response);
    scene.assert_left([1, 997]).await;
}

async fn failures_of_the_server_cost_nothing(scene: &Scene) {
    let layer = scene.layer().refund_if(|response| response.status.is_server_error()).build().unwrap();
    let service = service_fn(|request: Request<()>| async move {
        let (frames, receiver) = tokio::sync::mpsc::unbounded_channel();
        frames.send(Ok("sorry")).unwrap();
        let mut response = Response::new(Frames(receiver));
        *response.status_mut() =
            if request.uri().path() == "/broken" { 503 } else { 200 }.try_into().unwrap();
        Ok::<_, Infallible>(response)
    });
    let Ok(response) = layer.clone().layer(service).oneshot(to(request(), "/broken")).await;
    scene.assert_left([0, 900]).await;
    drop(response);
    scene.assert_left([1, 1_000]).await;
    answer_of(layer.layer(service), request()).await;
    scene.assert_left([1, 900]).await;
}

async fn a_skipped_request_has_no_handle(scene: &Scene) {
    let layer = scene.layer().skip(|request| request.uri.path() == "/health").build().unwrap();
    let service = service_fn(|request: Request<()>| async move {
        assert!(request.extensions().get::<ReservationHandle>().is_none());
        Ok::<_, Infallible>(Response::new(Full::from("ok")))
    });
    assert_eq!(answer_of(layer.layer(service), to(request(), "/health")).await.status, 200);
    scene.assert_left([1, 1_000]).await;
}
