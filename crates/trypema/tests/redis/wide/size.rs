//! The memory and the time that a long state costs the server.

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::redis::RedisLimiter;
use trypema::strategy::Absolute;
use trypema::{AbsoluteLimit, RateGroupSizeMs, RateLimit, RateLimiter, WindowSizeSeconds};
use trypema_testkit::blocking::{self, Blocking, connect};
use trypema_testkit::redis::Server;
use trypema_testkit::verbs::Verbs;

const GROUP: Duration = Duration::from_millis(5);

/// Numbers of live buckets, and the maximum bytes per bucket.
const BARS: [(u64, u64); 7] =
    [(1, 160), (50, 20), (500, 16), (1_000, 16), (2_000, 16), (4_000, 16), (6_000, 16)];

/// The number of takes over which the server's time is measured.
const MEASURED: u64 = 1_000;
/// The factor by which a take may be slower with a state that is two hundred times as long, to allow for
/// noise.
const NOISE: f64 = 3.0;

struct Scene {
    server: Server,
    clock: Arc<ManualClock>,
    rl: RateLimiter,
    limit: AbsoluteLimit,
}

impl Scene {
    /// A limit whose window contains `count` live buckets.
    fn with_buckets(count: u64) -> Self {
        let server = Server::start().unwrap();
        let clock = Arc::new(ManualClock::default());
        let rl = blocking::limiter(&connect(&server.url()), "trypema", &clock).build().unwrap();
        let limit = AbsoluteLimit::new(
            RateLimit::try_from(10_000.0).unwrap(),
            WindowSizeSeconds::try_from((count * GROUP.as_millis() as u64).div_ceil(1_000)).unwrap(),
            RateGroupSizeMs::try_from(GROUP.as_millis() as u64).unwrap(),
        );
        Self { server, clock, rl, limit }
    }

    /// Takes one unit in a new bucket, `count` times.
    fn take(&self, count: u64) {
        let limiter: &RedisLimiter<Absolute> = self.rl.redis().absolute();
        for _ in 0..count {
            self.clock.advance(GROUP);
            assert!(Blocking(limiter).take("ann", &self.limit, 1).is_allowed());
        }
    }

    fn bytes(&self) -> u64 {
        let mut control = self.server.control().unwrap();
        let usage = control.command(&["MEMORY", "USAGE", "trypema:{ann}:absolute"]).unwrap();
        u64::try_from(usage.integer().unwrap()).unwrap()
    }

    /// The average time of a take on the server, in microseconds.
    fn work_us(&self) -> f64 {
        self.server.control().unwrap().command(&["CONFIG", "RESETSTAT"]).unwrap();
        self.take(MEASURED);
        let stats = self.server.info("commandstats").unwrap();
        let field = |name: &str| {
            let mut pairs = stats.text("cmdstat_evalsha").split(',').filter_map(|pair| pair.split_once('='));
            pairs.find(|(known, _)| *known == name).unwrap().1.parse::<f64>().unwrap()
        };
        assert_eq!(field("calls"), MEASURED as f64);
        field("usec_per_call")
    }
}

#[test]
fn a_bucket_takes_sixteen_bytes_at_most() {
    let scene = Scene::with_buckets(7_000);
    let mut alive = 0;
    let mut too_large = Vec::new();
    for (buckets, most) in BARS {
        scene.take(buckets - alive);
        alive = buckets;
        let bytes = scene.bytes();
        println!("{buckets} buckets: {bytes} bytes, {:.2} each", bytes as f64 / buckets as f64);
        if bytes > buckets * most {
            too_large.push((buckets, bytes));
        }
    }
    assert_eq!(too_large, []);
}

#[test]
fn a_take_is_no_more_work_for_the_server_however_many_buckets_are_alive() {
    let work_us = [100, 20_000].map(|buckets| {
        let scene = Scene::with_buckets(buckets);
        scene.take(buckets + buckets / 10);
        scene.work_us()
    });
    println!("{:.1} us of work with 100 buckets alive, {:.1} us with 20,000", work_us[0], work_us[1]);
    assert!(work_us[1] < NOISE * work_us[0], "{work_us:?}");
}
