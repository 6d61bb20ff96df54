//! The hybrid provider next to that of trypema 2.2.1: a fleet at its limit, a fleet under its limit, and one
//! hot key. Run with `cargo xtask bench hybrid`.

mod closed_loop;
mod fleet;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trypema::redis::{RedisConnection, RedisKey};
use trypema::{AbsoluteLimit, RateLimiter};

use crate::bars::Bar;
use crate::measure::{Effort, median};
use crate::redis::Place;
use crate::report::{print_and_keep, write_bars};
use fleet::{Contender, Fleet, Load, Run};

const ROUNDS: usize = 5;
/// The number of checks between two reads of the clock.
const CALLS: u32 = 10_000;

pub fn run(effort: Effort<'_>) -> ExitCode {
    let mut text = String::new();
    let mut bars = at_the_limit(&mut text, effort);
    bars.extend(under_the_limit(&mut text, effort));
    bars.extend(uneven(&mut text, effort));
    bars.extend(closed_loop::measure(&mut text, effort));
    bars.extend(one_thread(&mut text));
    write_bars(&mut text, &bars);
    print_and_keep(&text, ("hybrid", effort))
}

fn lasting(effort: Effort<'_>, full: u64, quick: u64) -> Duration {
    Duration::from_secs(if effort == Effort::Full { full } else { quick })
}

/// Sixteen instances that are offered 200 times their limit.
fn at_the_limit(text: &mut String, effort: Effort<'_>) -> Vec<Bar> {
    let (limit, window) = (500, Duration::from_secs(5));
    let load = Load { instances: 16, per_second: 20_000, lasting: lasting(effort, 60, 16), turns: false };
    let _ = writeln!(
        text,
        "16 instances, {limit} per {window:?}, {} calls a second offered for {:?}:\n\n\
         | | most in any {window:?} | admitted | calls of Redis | calls offered per call of Redis |\n\
         | --- | ---: | ---: | ---: | ---: |",
        load.per_second, load.lasting
    );
    let runs = Contender::ALL.map(|contender| {
        eprintln!("measuring: at the limit, {}", contender.name());
        let run = Fleet { contender, limit, window }.run(load);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {:.0} |",
            contender.name(),
            run.most_in(window),
            run.admitted.len(),
            run.calls,
            run.offered.len() as f64 / run.calls.max(1) as f64
        );
        run
    });
    let [hybrid, redis, _] = &runs;
    vec![
        Bar {
            what: "at the limit: most in any window".to_owned(),
            measured: hybrid.most_in(window) as f64,
            at_most: true,
            bound: limit as f64,
        },
        Bar {
            what: "at the limit: admitted ÷ Redis provider's".to_owned(),
            measured: share(hybrid, redis),
            at_most: false,
            bound: 0.98,
        },
    ]
}

fn share(run: &Run, of: &Run) -> f64 {
    run.admitted.len() as f64 / of.admitted.len().max(1) as f64
}

/// Twenty instances with 1,000 requests per second each, 98 % of the limit.
fn under_the_limit(text: &mut String, effort: Effort<'_>) -> Vec<Bar> {
    let _ = writeln!(
        text,
        "\n20 instances of 1,000 calls a second, which is 98 % of the limit:\n\n\
         | window | denied | of the same calls, one exact limiter denies | calls of Redis | calls offered per call of \
         Redis |\n| --- | ---: | ---: | ---: | ---: |"
    );
    let mut bars = Vec::new();
    for seconds in [10, 60] {
        eprintln!("measuring: under the limit, {seconds} s");
        let window = Duration::from_secs(seconds);
        let load = Load { instances: 20, per_second: 20_000, lasting: lasting(effort, 30, 12), turns: false };
        let limit = 20_400 * seconds;
        let run = Fleet { contender: Contender::Hybrid, limit, window }.run(load);
        let offered = run.offered.len() as f64;
        let denied = (run.offered.len() - run.admitted.len()) as u64;
        // A machine that holds the fleet up lets the calls that were due come at once, which can be too many.
        let exactly = run.denied_exactly(&AbsoluteLimit::per_window(limit, window).expect("a limit"));
        let saved = offered / run.calls.max(1) as f64;
        let _ = writeln!(text, "| {window:?} | {denied} | {exactly} | {} | {saved:.0} |", run.calls);
        bars.push(Bar {
            what: format!("under the limit, {window:?}: offered per call of Redis"),
            measured: saved,
            at_most: false,
            bound: 50.0,
        });
        bars.push(Bar {
            what: format!("under the limit, {window:?}: share denied, less an exact limiter's"),
            measured: denied.saturating_sub(exactly) as f64 / offered,
            at_most: true,
            bound: 0.02,
        });
    }
    bars
}

/// Four instances: one receives nine tenths of the requests in the first half, another in the second half.
fn uneven(text: &mut String, effort: Effort<'_>) -> Vec<Bar> {
    eprintln!("measuring: uneven");
    let (limit, window) = (5_000, Duration::from_secs(5));
    let lasting = lasting(effort, 40, 20);
    let load = Load { instances: 4, per_second: 10_000, lasting, turns: true };
    let run = Fleet { contender: Contender::Hybrid, limit, window }.run(load);
    let after = run.admitted_from(lasting / 2, window);
    let _ = writeln!(
        text,
        "\n4 instances, {limit} per {window:?}, ten times that offered: one has 90 % of the calls, then another. In the window \
         after the switch {after} were admitted, and at most {} in any.",
        run.most_in(window)
    );
    vec![
        Bar {
            what: "uneven: of the limit, in the window after the switch".to_owned(),
            measured: after as f64 / limit as f64,
            at_most: false,
            bound: 0.98,
        },
        Bar {
            what: "uneven: most in any window ÷ limit".to_owned(),
            measured: run.most_in(window) as f64 / limit as f64,
            at_most: true,
            bound: 1.0,
        },
    ]
}

/// One hot key, checked by one thread.
fn one_thread(text: &mut String) -> Vec<Bar> {
    eprintln!("measuring: one hot key");
    let place = Place::new();
    let url = place.server.url();
    let _ = writeln!(text, "\nOne hot key, one thread, million checks a second:\n\n| | |\n| --- | ---: |");
    let rates = place.runtime.block_on(async {
        let connection = RedisConnection::connect(&url).await.expect("a connection");
        let rl = Arc::new(RateLimiter::builder().redis(connection).build().expect("a limiter"));
        tokio::spawn(rl.hybrid().keep_in_sync());
        let limit = AbsoluteLimit::per_window(60_000_000_000, Duration::from_secs(60)).expect("a limit");
        let key = RedisKey::try_from("hot").expect("a key");
        let published = Contender::Published.instance(&url, (60_000_000_000, Duration::from_secs(60))).await;
        let [mut at_once, mut waiting, mut theirs] = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            at_once.push(
                rate(async || {
                    let taken = rl.hybrid().absolute().try_take(&key, &limit, 1);
                    taken.is_some_and(|decision| decision.is_allowed())
                })
                .await,
            );
            waiting.push(
                rate(async || {
                    rl.hybrid().absolute().take(&key, &limit, 1).await.is_ok_and(|taken| taken.is_allowed())
                })
                .await,
            );
            theirs.push(rate(async || published.check().await).await);
        }
        [at_once, waiting, theirs].map(|rates| median(rates).unwrap_or(f64::NAN))
    });
    let [at_once, waiting, theirs] = rates;
    for (name, rate) in [("`try_take`", at_once), ("`take`", waiting), ("published 2.2.1 hybrid", theirs)] {
        let _ = writeln!(text, "| {name} | {rate:.2} |");
    }
    vec![
        Bar {
            what: "one hot key: million checks a second, `try_take`".to_owned(),
            measured: at_once,
            at_most: false,
            bound: 5.0,
        },
        Bar {
            what: "one hot key: `take` ÷ published 2.2.1".to_owned(),
            measured: waiting / theirs,
            at_most: false,
            bound: 1.0,
        },
    ]
}

/// Runs `check` for a second and returns the rate of admitted requests, in millions per second.
async fn rate(check: impl AsyncFn() -> bool) -> f64 {
    let (started, mut admitted) = (Instant::now(), 0_u64);
    while started.elapsed() < Duration::from_secs(1) {
        for _ in 0..CALLS {
            admitted += u64::from(check().await);
        }
        // On a single core, the background task runs only when this task yields.
        tokio::task::yield_now().await;
    }
    admitted as f64 / started.elapsed().as_secs_f64() / 1e6
}
