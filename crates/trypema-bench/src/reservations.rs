//! Reserving and settling next to two plain checks by the same rule: `cargo xtask bench reservations`.
//!
//! Both use the engine with one rule. On the hybrid provider, plain checks of a rule that is not leased are the
//! comparison: a reservation is always made in Redis, and a leased unit is spent without a call.

use std::fmt::Write as _;
use std::future::Future;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use trypema::RateLimiter;
use trypema::rules::{Engine, Request, ReserveOptions, RuleSet};

use crate::measure::{Effort, median};
use crate::redis::contender::{Contender, key_names};
use crate::redis::drive::{Driven, Loaded};
use crate::redis::{Place, ours};
use crate::report::print_and_keep;

/// The most that reserving and settling may cost, in two plain checks.
const BAR: f64 = 1.5;
const KEYS: usize = 10_000;
/// Calls of the local provider between two looks at the clock.
const CALLS: u32 = 20_000;
const LOCAL_ROUNDS: usize = 15;
const TTL: Duration = Duration::from_secs(60);

/// The strategies that a reservation is likely to be for, with a limit that no run reaches. The bucket refills so
/// slowly that settling has something to refund.
const STRATEGIES: [(&str, &str); 3] = [
    ("token bucket", "{token_bucket: {limit: 1000000000, window: 30d}}"),
    ("absolute", "{absolute: {limit: 1000000000, window: 1h}}"),
    ("fixed window", "{fixed_window: {limit: 1000000000, window: 1h}}"),
];

type NewEngine = fn(Arc<RateLimiter>, RuleSet) -> Engine;

pub fn run(effort: Effort<'_>) -> ExitCode {
    let mut text = "One rule per user, nothing is denied. Microseconds for two checks, and for reserving 3 units and \
                    settling at 2.\n\n| provider | strategy | workload | two checks | reserve and settle | ratio | \
                    Redis CPU: two checks | Redis CPU: reserve and settle |\n\
                    | --- | --- | --- | ---: | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    let mut ratios = Vec::new();
    for (name, strategy) in STRATEGIES {
        ratios.push((format!("local, {name}"), local(&mut text, name, strategy)));
    }
    for (provider, engine) in [("Redis", Engine::redis as NewEngine), ("hybrid", Engine::hybrid)] {
        for (name, strategy) in STRATEGIES {
            for (ratio, workload) in shared(&mut text, (provider, engine), (name, strategy), effort) {
                ratios.push((format!("{provider}, {name}, {workload}"), ratio));
            }
        }
    }
    let _ = writeln!(text);
    for (what, ratio) in ratios {
        let verdict = crate::rules::verdict(ratio <= BAR);
        let _ = writeln!(text, "- {what}: {ratio:.2} × two checks (bar: at most {BAR}){verdict}");
    }
    print_and_keep(&text, ("reservations", effort))
}

/// Returns one rule with a counter per user.
pub fn rules(strategy: &str, postpaid: bool) -> RuleSet {
    let rule = format!("rules: [{{id: user, scope: user, postpaid: {postpaid}, strategy: {strategy}}}]");
    RuleSet::from_yaml(&rule, "rules.yaml").unwrap_or_else(|error| panic!("{error}"))
}

/// Measures on counters in this process, which answer at once. Returns the ratio.
fn local(text: &mut String, name: &str, strategy: &str) -> f64 {
    let limiter = Arc::new(RateLimiter::builder().build().expect("a limiter"));
    let engine = Arc::new(Engine::local(limiter, rules(strategy, false)));
    let names = key_names(KEYS);
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..LOCAL_ROUNDS {
        for (reserves, times) in [false, true].into_iter().zip(&mut times) {
            let subject = Subject { engine: Arc::clone(&engine), reserves };
            let started = Instant::now();
            for call in 0..CALLS as usize {
                let answer = now(subject.check(&names[call * 7 % KEYS]));
                assert_eq!(answer, Ok(true));
            }
            times.push(started.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS));
        }
    }
    let [checks, reserving] = times.map(|times| median(times).unwrap_or(f64::NAN));
    let _ = writeln!(
        text,
        "| local | {name} | one thread, {KEYS} keys | {checks:.2} | {reserving:.2} | {:.2} | | |",
        reserving / checks
    );
    reserving / checks
}

/// Measures on a Redis server. Returns the ratio of each workload.
fn shared(
    text: &mut String,
    (provider, engine): (&str, NewEngine),
    (name, strategy): (&str, &str),
    effort: Effort<'_>,
) -> Vec<(f64, &'static str)> {
    let (rounds, lasting) = match effort {
        Effort::Full => (5, Duration::from_secs(2)),
        Effort::Quick(_) => (3, Duration::from_millis(700)),
    };
    let mut place = Place::new();
    // Postpaid rules are never leased.
    let set = rules(strategy, provider == "hybrid");
    let engine = place.runtime.block_on(async {
        let limiter = ours::builder(&place.server.url()).await.build().expect("a limiter");
        Arc::new(engine(Arc::new(limiter), set))
    });
    let mut ratios = Vec::new();
    for (workload, in_flight, keys) in [("1 in flight", 1, 1), ("64 in flight, 10k keys", 64, KEYS)] {
        eprintln!("measuring: {provider}, {name}, {workload}");
        place.server.flush();
        let subjects = [false, true].map(|reserves| {
            Loaded::new(Subject { engine: Arc::clone(&engine), reserves }, &key_names(keys))
        });
        let (mut times, mut cpu) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for _ in 0..rounds {
            for (index, subject) in subjects.iter().enumerate() {
                let before = place.server.spent();
                let tally = subject.drive(&place.runtime, in_flight, lasting);
                assert_eq!((tally.failed, tally.calls), (0, tally.admitted), "{}", tally.failure);
                let calls = tally.calls.max(1) as f64;
                times[index].push(tally.took.as_secs_f64() * 1e6 / calls);
                cpu[index].push((place.server.spent().cpu - before.cpu) / calls);
            }
        }
        let of = |values: Vec<f64>| median(values).unwrap_or(f64::NAN);
        let ([checks, reserving], [checks_cpu, reserving_cpu]) = (times.map(of), cpu.map(of));
        let _ = writeln!(
            text,
            "| {provider} | {name} | {workload} | {checks:.1} | {reserving:.1} | {:.2} | {checks_cpu:.1} | \
             {reserving_cpu:.1} |",
            reserving / checks
        );
        ratios.push((reserving / checks, workload));
    }
    ratios
}

/// Two checks, or a reservation that is settled.
struct Subject {
    engine: Arc<Engine>,
    reserves: bool,
}

impl Contender for Subject {
    type Key = String;

    fn key(name: &str) -> String {
        name.to_owned()
    }

    async fn check(&self, key: &String) -> Result<bool, String> {
        let attributes = [("user", key.as_str())];
        let request = Request::new(&attributes).costing(3);
        if self.reserves {
            let options = ReserveOptions::new(TTL).map_err(|error| error.to_string())?;
            let mut reserved = self.engine.reserve(&request, &options).await.map_err(|error| error.to_string())?;
            let settled = reserved.settle(&[("requests", 2)]).await.map_err(|error| error.to_string())?;
            return Ok(settled.is_complete());
        }
        let mut is_allowed = true;
        for _ in 0..2 {
            let verdict = self.engine.check(&request).await.map_err(|error| error.to_string())?;
            is_allowed &= verdict.is_allowed();
        }
        Ok(is_allowed)
    }
}

/// Returns the output of a future that never waits.
fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("counters in this process never wait"),
    }
}
