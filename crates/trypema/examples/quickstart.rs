//! The smallest useful program: five requests per second for each user, and the denial of the sixth.
//!
//! ```text
//! cargo run --example quickstart
//! ```

use std::time::Duration;

use trypema::{RateLimiter, TokenBucketLimits, TokenLimit, TrypemaError};

fn main() -> Result<(), TrypemaError> {
    let rl = RateLimiter::builder().build()?;
    let five_a_second = TokenBucketLimits::from(TokenLimit::new(5, Duration::from_secs(1))?);

    for call in 1..=6 {
        let decision = rl.local().token_bucket().take("ann", &five_a_second, 1);
        match decision.retry_after() {
            Some(Duration::ZERO) => {
                println!("call {call}: admitted, {} left", decision.remaining())
            }
            Some(wait) => println!("call {call}: denied, try again in {wait:?}"),
            None => println!("call {call}: more than can ever fit"),
        }
    }
    Ok(())
}
