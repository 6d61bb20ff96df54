//! The strategies of the Redis provider, called as an application calls them.

use std::time::Duration;

use trypema::redis::{InstanceLiveness, LeaseArgs, RedisConnection, RedisKey};
use trypema::strategy::LeaseParams;
use trypema::{
    AbsoluteLimit, AbuseLimit, AbuseTier, FixedWindowLimit, RateGroupSizeMs, RateLimit, RateLimiter,
    RateLimiterBuilder, SlidingWindowLimit, TokenBucketLimits, TokenLimit, TrypemaError, WindowSizeSeconds,
};

use super::contender::{Contender, EXACTLY, Load};

const HOUR: Duration = Duration::from_secs(3_600);
const PLENTY: u64 = u32::MAX as u64;

/// The deadline of a call. It is longer than the default, so that a busy machine does not abort the run.
const DEADLINE: Duration = Duration::from_secs(2);

/// A limiter with the limit of one strategy.
pub struct Ours<L> {
    pub limiter: RateLimiter,
    pub limit: L,
}

/// Returns a builder with its own connection.
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

/// Returns the number of units that are admitted per hour.
fn an_hour(load: Load) -> u64 {
    match load {
        Load::Plenty | Load::Young | Load::Expiring => PLENTY,
        Load::Scarce => 100,
        Load::Counted => EXACTLY,
    }
}

/// The rate for `inc` of the trypema 1.x API.
pub struct Absolute(RateLimit);
pub struct Suppressed(RateLimit);
/// A limit whose units are leased, as an instance of the hybrid provider does.
pub struct Leases<L>(L);
/// Two token bucket limits. Their state differs from that of one limit, so the keys differ as well.
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

pub fn absolute_leases(load: Load) -> Leases<AbsoluteLimit> {
    Leases(AbsoluteLimit::per_window(an_hour(load), HOUR).expect("a valid limit"))
}

pub fn sliding_window_leases(load: Load) -> Leases<SlidingWindowLimit> {
    Leases(sliding_window(load))
}

pub fn fixed_window_leases(load: Load) -> Leases<FixedWindowLimit> {
    Leases(fixed_window(load))
}

fn token_limit(load: Load) -> TokenLimit {
    let refill = match load {
        Load::Plenty | Load::Young | Load::Expiring => Duration::from_millis(PLENTY),
        Load::Scarce => HOUR,
        // Slow enough that no unit is refilled while the admitted calls are counted.
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
    // A threshold is at most 10,000, which a hot key reaches in less than a second, so the window is a
    // millisecond.
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

/// Implements [`Contender`] by calling one method of a limiter.
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

/// Implements [`Contender`] by requesting a lease.
macro_rules! leasing_contender {
    ($limit:ty, $strategy:ident) => {
        impl Contender for Ours<Leases<$limit>> {
            type Key = RedisKey;

            fn key(name: &str) -> RedisKey {
                key(name)
            }

            async fn check(&self, key: &RedisKey) -> Result<bool, String> {
                let params = LeaseParams { need: 1, want: 8, length_us: 500_000, ..LeaseParams::default() };
                let instance = InstanceLiveness { id: 1, live_for_us: 3_000_000 };
                let args = LeaseArgs { params, instance };
                let response = self.limiter.redis().$strategy().lease(key, &self.limit.0, args).await;
                response.map(|response| response.lease.units > 0).map_err(|failure| failure.to_string())
            }
        }
    };
}

leasing_contender!(AbsoluteLimit, absolute);
leasing_contender!(SlidingWindowLimit, sliding_window);
leasing_contender!(FixedWindowLimit, fixed_window);

impl Contender for Ours<TwoLimits> {
    type Key = RedisKey;

    fn key(name: &str) -> RedisKey {
        // As long as the other contenders' keys, but different.
        key(&name.replacen('u', "v", 1))
    }

    async fn check(&self, key: &RedisKey) -> Result<bool, String> {
        let answer = self.limiter.redis().token_bucket().take(key, &self.limit.0, 1).await;
        told(answer, |decision| decision.is_allowed())
    }
}
