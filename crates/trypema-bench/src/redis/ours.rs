//! Our own strategies on the Redis provider, as a user calls them.

use std::time::Duration;

use trypema::redis::{RedisConnection, RedisKey};
use trypema::{
    AbuseLimit, AbuseTier, FixedWindowLimit, RateGroupSizeMs, RateLimit, RateLimiter, RateLimiterBuilder,
    SlidingWindowLimit, TokenBucketLimits, TokenLimit, TrypemaError, WindowSizeSeconds,
};

use super::contender::{Contender, EXACTLY, Load};

const HOUR: Duration = Duration::from_secs(3_600);
const PLENTY: u64 = u32::MAX as u64;

/// The default is meant for a machine that does something else besides; a busy one must not end the run.
const DEADLINE: Duration = Duration::from_secs(2);

/// A strategy's limit with the provider that holds it.
pub struct Ours<L> {
    pub limiter: RateLimiter,
    pub limit: L,
}

/// One connection of its own.
pub async fn builder(url: &str) -> RateLimiterBuilder {
    let connection = RedisConnection::connect(url).await.expect("a connection");
    RateLimiter::builder().redis(connection).redis_deadline(DEADLINE)
}

pub async fn limiter(url: &str, load: Load) -> RateLimiter {
    let (window, group) = match load {
        Load::Expiring => (1, 1),
        _ => (3_600, 10),
    };
    let window = WindowSizeSeconds::try_from(window).expect("a valid window");
    let group = RateGroupSizeMs::try_from(group).expect("a valid group");
    builder(url).await.window_size_seconds(window).rate_group_size_ms(group).build().expect("valid options")
}

/// How many are admitted in an hour.
fn an_hour(load: Load) -> u64 {
    match load {
        Load::Plenty | Load::Young | Load::Expiring => PLENTY,
        Load::Scarce => 100,
        Load::Counted => EXACTLY,
    }
}

/// The rate of the published names' `inc`.
pub struct Absolute(RateLimit);
pub struct Suppressed(RateLimit);
/// Two limits are another state than one, so their keys are apart.
pub struct TwoLimits(TokenBucketLimits);

fn rate(load: Load) -> RateLimit {
    let per_second = match load {
        Load::Plenty | Load::Young | Load::Expiring => 1e8,
        Load::Scarce => 100.0 / 3_600.0,
        Load::Counted => EXACTLY as f64 / 3_600.0,
    };
    RateLimit::try_from(per_second).expect("a valid rate")
}

pub fn absolute(load: Load) -> Absolute {
    Absolute(rate(load))
}

pub fn suppressed(load: Load) -> Suppressed {
    Suppressed(rate(load))
}

fn token_limit(load: Load) -> TokenLimit {
    let refill = match load {
        Load::Plenty | Load::Young | Load::Expiring => Duration::from_millis(PLENTY),
        Load::Scarce => HOUR,
        // Slow enough that nothing comes back while it is counted.
        Load::Counted => HOUR * 1_000,
    };
    TokenLimit::new(an_hour(load), refill).expect("a valid limit")
}

pub fn token_bucket(load: Load) -> TokenBucketLimits {
    token_limit(load).into()
}

pub fn token_bucket_of_two(load: Load) -> TwoLimits {
    let wider = TokenLimit::new(PLENTY, Duration::from_millis(PLENTY) * 2).expect("a valid limit");
    TwoLimits(TokenBucketLimits::new([token_limit(load), wider]).expect("valid limits"))
}

pub fn sliding_window(load: Load) -> SlidingWindowLimit {
    SlidingWindowLimit::new(an_hour(load), HOUR).expect("a valid limit")
}

pub fn fixed_window(load: Load) -> FixedWindowLimit {
    FixedWindowLimit::new(an_hour(load), HOUR).expect("a valid limit")
}

pub fn abuse(load: Load) -> AbuseLimit {
    // No threshold is above 10,000, which a hot key makes in less than a second: it counts in milliseconds.
    let (window, threshold) = match load {
        Load::Plenty | Load::Expiring => (Duration::from_millis(1), 10_000),
        Load::Young => (HOUR, 10_000),
        Load::Scarce | Load::Counted => (HOUR, 100),
    };
    let tier = AbuseTier::new(window, threshold, HOUR).expect("a valid tier");
    AbuseLimit::new(tier, tier)
}

fn key(name: &str) -> RedisKey {
    RedisKey::try_from(name).expect("a valid key")
}

fn told<T>(answer: Result<T, TrypemaError>, is_allowed: impl FnOnce(T) -> bool) -> Result<bool, String> {
    answer.map(is_allowed).map_err(|error| error.to_string())
}

/// Calls a method of a limiter for one more of a key.
macro_rules! contender {
    ($limit:ty, $strategy:ident, $verb:ident, $($field:tt)?) => {
        impl Contender for Ours<$limit> {
            type Key = RedisKey;

            fn key(name: &str) -> RedisKey {
                key(name)
            }

            async fn check(&self, key: &RedisKey) -> Result<bool, String> {
                let answer = self.limiter.redis().$strategy().$verb(key, &self.limit$(.$field)?, 1).await;
                told(answer, |decision| decision.is_allowed())
            }
        }
    };
}

contender!(Absolute, absolute, inc, 0);
contender!(Suppressed, suppressed, inc, 0);
contender!(TokenBucketLimits, token_bucket, take,);
contender!(SlidingWindowLimit, sliding_window, take,);
contender!(FixedWindowLimit, fixed_window, take,);
contender!(AbuseLimit, abuse, take,);

impl Contender for Ours<TwoLimits> {
    type Key = RedisKey;

    fn key(name: &str) -> RedisKey {
        // As long as the others', and another.
        key(&name.replacen('u', "v", 1))
    }

    async fn check(&self, key: &RedisKey) -> Result<bool, String> {
        let answer = self.limiter.redis().token_bucket().take(key, &self.limit.0, 1).await;
        told(answer, |decision| decision.is_allowed())
    }
}
