//! An HTTP API that is limited by a rules file: plans, costs, an override, an allow list, and every strategy.
//!
//! ```text
//! cargo run --example axum --features axum
//! ```

mod app;

use std::net::SocketAddr;

use trypema::RateLimiter;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = tokio::net::TcpListener::bind(&address).await?;
    let address = listener.local_addr()?;
    let app = app::app(app::engine(RateLimiter::builder().max_keys(1_000_000).build()?)?)?;
    println!("listening on http://{address}; try, a few times each:\n");
    println!("  curl -i -H 'x-api-key: free-ann' http://{address}/search     # three a minute");
    println!("  curl -i -H 'x-api-key: pro-bob' http://{address}/search      # five a second");
    println!("  curl -i -H 'x-api-key: free-ann' http://{address}/export     # two an hour, five units each");
    println!(
        "  curl -i -X POST http://{address}/verify                      # the third is blocked for ten minutes"
    );
    println!("  curl -i -H 'x-api-key: internal' http://{address}/search     # never limited");
    // The rules need the peer's address: the layer takes it from the connection info.
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
