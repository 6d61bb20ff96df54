//! Options of the layer: costs, exempt requests, methods.

use http::{Method, Request};
use trypema::http::HeaderStyle;

use super::scene::{hourly_layer, request, send, statuses, to};

fn by(method: Method) -> Request<()> {
    let mut request = request();
    *request.method_mut() = method;
    request
}

#[tokio::test]
async fn a_request_spends_its_cost() {
    let exports = hourly_layer(10).cost(|request| if request.uri.path() == "/export" { 6 } else { 1 });
    let layer = exports.use_headers(HeaderStyle::Standard).build().unwrap();
    let left = |answer: &super::scene::Answer| answer.field("ratelimit", ["r", "t"]).1[0];
    assert_eq!(left(&send(&layer, to(request(), "/export")).await), 4);
    let denied = send(&layer, to(request(), "/export")).await;
    assert_eq!((denied.status.as_u16(), left(&denied)), (429, 4));
    assert_eq!(left(&send(&layer, request()).await), 3);
}

#[tokio::test]
async fn a_request_that_costs_nothing_is_let_in_and_told_what_is_left() {
    let free = hourly_layer(1).cost(|request| u64::from(request.uri.path() != "/free"));
    let layer = free.use_headers(HeaderStyle::XRateLimit).build().unwrap();
    send(&layer, request()).await;
    let free = send(&layer, to(request(), "/free")).await;
    assert_eq!((free.status.as_u16(), free.header("x-ratelimit-remaining")), (200, Some("0")));
}

#[tokio::test]
async fn what_is_skipped_is_neither_counted_nor_told() {
    let layer = hourly_layer(1)
        .skip(|request| request.uri.path() == "/health")
        .skip(|request| request.headers.contains_key("x-internal"))
        .use_headers(HeaderStyle::Standard)
        .build()
        .unwrap();
    let internal = || super::scene::with_header(request(), "x-internal", "1");
    let requests = [to(request(), "/health"), internal(), request(), request()];
    assert_eq!(statuses(&layer, requests).await, [200, 200, 200, 429]);
    let skipped = send(&layer, internal()).await;
    assert!(skipped.status == 200 && skipped.headers.is_empty(), "{skipped:?}");
    // A skipped request does not even need a key.
    let mut keyless = Request::new(());
    *keyless.uri_mut() = "/health".parse().unwrap();
    assert_eq!(send(&layer, keyless).await.status, 200);
}

#[tokio::test]
async fn only_the_methods_that_are_named() {
    let layer = hourly_layer(1).methods([Method::POST, Method::PUT]).build().unwrap();
    let methods = [Method::GET, Method::POST, Method::PUT, Method::GET, Method::POST];
    assert_eq!(statuses(&layer, methods.map(by)).await, [200, 200, 429, 200, 429]);
}
