//! A gRPC service with a limit per client, and a client that exceeds it: the response is `RESOURCE_EXHAUSTED`
//! with the time to wait.
//!
//! ```text
//! cargo run --example tonic --features tower
//! ```

use std::net::SocketAddr;
use std::time::Duration;

use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;
use trypema::http::AddressKey;
use trypema::tower::{RateLimitLayer, RequestView};
use trypema::{TokenBucketLimits, TokenLimit};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = serve().await?;
    let channel = Channel::from_shared(format!("http://{address}"))?.connect().await?;
    let mut client = HealthClient::new(channel);
    for call in 1..=5 {
        match client.check(HealthCheckRequest::default()).await {
            Ok(_) => println!("call {call}: ok"),
            Err(status) => {
                let info = status.get_details_retry_info();
                let wait = info.and_then(|info| info.retry_delay).unwrap_or_default();
                println!("call {call}: {:?}, {}; retry in {wait:?}", status.code(), status.message());
            }
        }
    }
    Ok(())
}

/// Starts a health service with a limit of three requests per ten seconds for each address.
async fn serve() -> Result<SocketAddr, Box<dyn std::error::Error>> {
    let limits = RateLimitLayer::builder()
        .limit(TokenBucketLimits::from(TokenLimit::new(3, Duration::from_secs(10))?))
        .key_extractor(peer)
        .build()?;
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse()?)?;
    let address = incoming.local_addr()?;
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(limits.any_body()).add_service(health).serve_with_incoming(incoming);
    tokio::spawn(server);
    Ok(address)
}

/// Returns the client's address from the extension in which tonic stores it.
fn peer(request: &RequestView<'_>) -> Option<String> {
    let address = request.extensions.get::<TcpConnectInfo>()?.remote_addr()?;
    Some(AddressKey::of(address.ip()).to_string())
}
