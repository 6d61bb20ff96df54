//! A gateway in front of a language model: it reserves the tokens that a completion may cost, and settles
//! those that it did cost. A client that leaves in the middle of a stream pays for what was sent.
//!
//! ```text
//! cargo run --example llm_gateway --features axum
//! ```

mod app;
mod metered;
mod model;

use std::time::Duration;

use trypema::RateLimiter;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = tokio::net::TcpListener::bind(&address).await?;
    let address = listener.local_addr()?;
    let model = model::model(Duration::from_millis(100));
    let app = app::app(app::engine(RateLimiter::builder().max_keys(1_000_000).build()?)?, model)?;
    let complete = |options: &str, limits: &str, stream: bool| {
        format!(
            "  curl {options} -H 'x-api-key: ann' -H 'content-type: application/json' -d '{{\"model\": \"mock\", \
             \"messages\": [{{\"role\": \"user\", \"content\": \"Count.\"}}], \"max_tokens\": {limits}, \
             \"stream\": {stream}}}' http://{address}/v1/chat/completions"
        )
    };
    println!("listening on http://{address}; 500 tokens a minute. Watch `\"tokens\";r=…`:\n");
    println!("{}   # reserves 209, costs 107\n", complete("-i", "200", false));
    println!("{}   # leaves after 2 seconds: costs about 30\n", complete("-iN -m 2", "200", true));
    println!("{}   # what is left of them\n", complete("-i", "2", false));
    println!("{}   # does not fit: 429", complete("-i", "480", false));
    axum::serve(listener, app).await?;
    Ok(())
}
