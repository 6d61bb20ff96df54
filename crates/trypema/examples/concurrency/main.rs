//! An upload endpoint that admits two uploads of each user and eight in all at the same time. Others wait for
//! up to five seconds.
//!
//! ```text
//! cargo run --example concurrency --features axum
//! ```

mod app;

use trypema::RateLimiter;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = tokio::net::TcpListener::bind(&address).await?;
    let address = listener.local_addr()?;
    let app = app::app(app::engine(RateLimiter::builder().max_keys(1_000_000).build()?)?)?;
    let uploads = |seconds: u8| {
        format!(
            "  for n in 1 2 3; do (sleep {seconds}; echo $n) | curl -s -w '%{{http_code}}\\n' -X POST -T - \
             -H 'x-user: ann' http://{address}/upload & done; wait"
        )
    };
    println!("listening on http://{address}; try three uploads at the same time:\n");
    println!("{}   # the third waits for 3 seconds\n", uploads(3));
    println!("{}   # the third gets 429 after 5 seconds", uploads(8));
    axum::serve(listener, app).await?;
    Ok(())
}
