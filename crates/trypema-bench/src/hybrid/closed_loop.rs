//! Many warm keys in a closed loop: the hybrid provider next to the Redis provider, each with its own Redis
//! server.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use trypema::redis::RedisKey;
use trypema::{AbsoluteLimit, RateLimiter};

use crate::bars::Bar;
use crate::measure::{Effort, median};
use crate::redis::contender::{Contender, key_names};
use crate::redis::drive::{Driven, Loaded, Tally};
use crate::redis::{Place, ours};

const IN_FLIGHT: usize = 64;
const KEYS: usize = 10_000;
const WINDOW: Duration = Duration::from_secs(60);
/// A limit that no run reaches.
const LIMIT: u64 = 1_000_000_000;
/// The time before the measurement in which the keys become warm.
const WARM_UP: Duration = Duration::from_secs(3);

/// One of the two providers, with its limit.
struct Subject {
    rl: Arc<RateLimiter>,
    limit: AbsoluteLimit,
    is_hybrid: bool,
}

impl Contender for Subject {
    type Key = RedisKey;

    fn key(name: &str) -> RedisKey {
        RedisKey::try_from(name).expect("a valid key")
    }

    async fn check(&self, key: &RedisKey) -> Result<bool, String> {
        let decision = match self.is_hybrid {
            true => self.rl.hybrid().absolute().take(key, &self.limit, 1).await,
            false => self.rl.redis().absolute().take(key, &self.limit, 1).await,
        };
        decision.map(|decision| decision.is_allowed()).map_err(|error| error.to_string())
    }
}

/// A provider with its Redis server and its results, one per round.
struct Lap {
    place: Place,
    subject: Loaded<Subject>,
    thousands_a_second: Vec<f64>,
    scripts_per_call: Vec<f64>,
    redis_us_per_call: Vec<f64>,
}

impl Lap {
    fn new(is_hybrid: bool) -> Self {
        let place = Place::new();
        let rl = place.runtime.block_on(async {
            let rl = Arc::new(ours::builder(&place.server.url()).await.build().expect("a limiter"));
            if is_hybrid {
                tokio::spawn(rl.hybrid().keep_in_sync());
            }
            rl
        });
        let limit = AbsoluteLimit::per_window(LIMIT, WINDOW).expect("a limit");
        let subject = Loaded::new(Subject { rl, limit, is_hybrid }, &key_names(KEYS)).in_random_order();
        let [thousands_a_second, scripts_per_call, redis_us_per_call] = [Vec::new(), Vec::new(), Vec::new()];
        Self { place, subject, thousands_a_second, scripts_per_call, redis_us_per_call }
    }

    fn run(&mut self, lasting: Duration) {
        self.drive(WARM_UP);
        let (scripts, spent) = (self.place.server.script_calls(), self.place.server.spent());
        let tally = self.drive(lasting);
        let calls = tally.calls.max(1) as f64;
        self.thousands_a_second.push(tally.calls as f64 / tally.took.as_secs_f64() / 1e3);
        self.scripts_per_call.push((self.place.server.script_calls() - scripts) as f64 / calls);
        self.redis_us_per_call.push((self.place.server.spent().cpu - spent.cpu) / calls);
    }

    fn drive(&self, lasting: Duration) -> Tally {
        let tally = self.subject.drive(&self.place.runtime, IN_FLIGHT, lasting);
        assert_eq!((tally.failed, tally.calls), (0, tally.admitted), "{}", tally.failure);
        tally
    }
}

pub fn measure(text: &mut String, effort: Effort<'_>) -> Vec<Bar> {
    let (rounds, seconds) = if effort == Effort::Full { (3, 5) } else { (1, 4) };
    let mut laps = [Lap::new(true), Lap::new(false)];
    for round in 1..=rounds {
        eprintln!("measuring: closed loop over {KEYS} keys, round {round}");
        laps.iter_mut().for_each(|lap| lap.run(Duration::from_secs(seconds)));
    }
    let _ = writeln!(
        text,
        "\n{IN_FLIGHT} calls in flight over {KEYS} keys, window {WINDOW:?}, nothing denied:\n\n\
         | | thousand calls a second | script calls per call | Redis CPU µs per call |\n| --- | ---: | ---: | ---: |"
    );
    let of = |values: &[f64]| median(values.to_vec()).unwrap_or(f64::NAN);
    let [hybrid, redis] =
        laps.map(|lap| [of(&lap.thousands_a_second), of(&lap.scripts_per_call), of(&lap.redis_us_per_call)]);
    for (name, [rate, scripts, cpu_us]) in [("ours: hybrid", hybrid), ("ours: Redis", redis)] {
        let _ = writeln!(text, "| {name} | {rate:.0} | {scripts:.4} | {cpu_us:.2} |");
    }
    vec![
        Bar {
            what: "closed loop: script calls per call ÷ Redis provider's".to_owned(),
            measured: hybrid[1] / redis[1],
            at_most: true,
            bound: 0.25,
        },
        Bar {
            what: "closed loop: throughput ÷ Redis provider's".to_owned(),
            measured: hybrid[0] / redis[0],
            at_most: false,
            bound: 5.0,
        },
    ]
}
