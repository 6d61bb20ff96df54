//! Counts only failed logins. A user with the right password can log in any number of times. An account is
//! blocked after three wrong passwords in a minute, or ten in an hour.
//!
//! ```text
//! cargo run --example login_guard --features axum
//! ```

mod app;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = tokio::net::TcpListener::bind(&address).await?;
    let address = listener.local_addr()?;
    let app = app::app(trypema::RateLimiter::builder().max_keys(1_000_000).build()?)?;
    println!("listening on http://{address}; try:\n");
    println!("  curl -i -u ann:wrong -X POST http://{address}/login      # three times, then the right one:");
    println!("  curl -i -u ann:secret -X POST http://{address}/login");
    axum::serve(listener, app).await?;
    Ok(())
}
