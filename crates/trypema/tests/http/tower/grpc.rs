//! The middleware in front of a real gRPC server, called by a real client.

use std::net::SocketAddr;
use std::time::Duration;

use http::HeaderValue;
use tonic::transport::server::TcpConnectInfo;
use tonic::transport::{Channel, Server};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;
use trypema::http::{AddressKey, HeaderStyle};
use trypema::tower::{ByLimit, RateLimitLayer, RateLimitLayerBuilder, RequestView};

use super::scene::{grpc_call, hourly_layer, send};

/// Starts a health service behind `layer`. Returns a client of it.
async fn client_of(layer: RateLimitLayer) -> HealthClient<Channel> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let (_, service) = tonic_health::server::health_reporter();
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    tokio::spawn(Server::builder().layer(layer.any_body()).serve_with_incoming(service, incoming));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    HealthClient::new(channel)
}

/// Limits by the peer address that tonic provides.
fn by_peer(limit: u64) -> RateLimitLayerBuilder<ByLimit> {
    let peer = |request: &RequestView<'_>| {
        let address = request.extensions.get::<TcpConnectInfo>()?.remote_addr()?;
        Some(AddressKey::of(address.ip()).to_string())
    };
    hourly_layer(limit).key_extractor(peer)
}

async fn check(client: &mut HealthClient<Channel>) -> Result<(), Status> {
    client.check(HealthCheckRequest::default()).await.map(drop)
}

#[tokio::test]
async fn a_denied_call_is_exhausted_and_told_to_wait() {
    let mut client = client_of(by_peer(2).use_headers(HeaderStyle::Standard).build().unwrap()).await;
    let welcome = client.check(HealthCheckRequest::default()).await.unwrap();
    assert_eq!(welcome.metadata().get("ratelimit").unwrap(), "\"hourly\";r=1;t=2000");
    check(&mut client).await.unwrap();

    let denied = check(&mut client).await.unwrap_err();
    assert_eq!((denied.code(), denied.message()), (Code::ResourceExhausted, "Too many requests."));
    let delay = denied.get_details_retry_info().unwrap().retry_delay;
    assert_eq!(delay, Some(Duration::from_secs(2_000)));
    assert_eq!(denied.metadata().get("grpc-retry-pushback-ms").unwrap(), "2000000");
    assert_eq!(denied.metadata().get("ratelimit").unwrap(), "\"hourly\";r=0;t=2000");
}

#[tokio::test]
async fn a_call_that_never_fits_is_not_to_be_tried_again() {
    let mut client = client_of(by_peer(2).cost(|_| 3).build().unwrap()).await;
    let denied = check(&mut client).await.unwrap_err();
    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert!(denied.get_details_retry_info().is_none());
    assert_eq!(denied.metadata().get("grpc-retry-pushback-ms").unwrap(), "-1");
}

#[tokio::test]
async fn a_call_without_a_key_is_an_internal_error() {
    let mut client = client_of(hourly_layer(1).build().unwrap()).await;
    let status = check(&mut client).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    let says_what_to_do = status.message().contains("extensions");
    assert_eq!(says_what_to_do, cfg!(debug_assertions), "{status:?}");
}

/// A gRPC denial is sent in headers only: no body, no `Retry-After`.
#[tokio::test]
async fn a_grpc_answer_is_headers_alone() {
    let layer = hourly_layer(1).build().unwrap();
    assert_eq!(send(&layer, grpc_call()).await.status, 200);
    let denied = send(&layer, grpc_call()).await;
    assert_eq!((denied.status.as_u16(), denied.body.as_str()), (200, ""));
    assert_eq!(denied.headers["grpc-status"], HeaderValue::from_static("8"));
    assert_eq!(denied.header("retry-after"), None);
}

/// Only a POST is a gRPC call. Another method receives a 429, because caches would store a denial with status
/// 200.
#[tokio::test]
async fn only_a_post_is_a_call() {
    let layer = hourly_layer(1).build().unwrap();
    let page = || {
        let mut call = grpc_call();
        *call.method_mut() = http::Method::GET;
        call
    };
    assert_eq!(send(&layer, page()).await.status, 200);
    let denied = send(&layer, page()).await;
    assert_eq!((denied.status.as_u16(), denied.header("grpc-status")), (429, None));
}
