//! Measures the script time that the short version of a script's usual case (`quick/*.lua` and
//! `quick/refund/*.lua`) saves: `cargo xtask bench quick`.

use std::process::ExitCode;
use std::time::Duration;

use super::contender::{
    ABSOLUTE, ABSOLUTE_LEASES, FIXED_WINDOW, FIXED_WINDOW_LEASES, Load, SLIDING_WINDOW,
    SLIDING_WINDOW_LEASES, SUPPRESSED, TOKEN_BUCKET, TOKEN_BUCKET_OF_TWO, key_names, open_ours,
};
use super::ours;
use super::server::Place;
use super::settling::{self, SETTLED, Settling};
use crate::measure::median;

const NAMES: [&str; 9] = [
    ABSOLUTE,
    ABSOLUTE_LEASES,
    SUPPRESSED,
    TOKEN_BUCKET,
    TOKEN_BUCKET_OF_TWO,
    SLIDING_WINDOW,
    SLIDING_WINDOW_LEASES,
    FIXED_WINDOW,
    FIXED_WINDOW_LEASES,
];
const ROUNDS: usize = 7;
const SLICE: Duration = Duration::from_millis(200);

/// The calls of one column.
struct Calls {
    load: Load,
    in_flight: usize,
    keys: usize,
}

/// A contender and its calls.
struct Measured {
    name: &'static str,
    calls: Calls,
}

const ALONE: Calls = Calls { load: Load::Plenty, in_flight: 1, keys: 1 };
const MANY_KEYS: Calls = Calls { load: Load::Young, in_flight: 64, keys: 10_000 };

/// The settlements of both columns. Each settles the only reservation of its key, so that the table beside the
/// counter is as short as it usually is.
const SETTLEMENTS: [Settling; 2] =
    [Settling { in_flight: 1, keys: 1_000 }, Settling { in_flight: 64, keys: 10_000 }];

/// Prints the microseconds inside commands per call, with and without the short versions.
pub fn run() -> ExitCode {
    let mut place = Place::new();
    // Both variants run through a proxy, so that the same number of calls share a script call.
    let proxies = [place.server.proxy(), place.server.proxy_without_quick()];
    let urls = proxies.each_ref().map(|proxy| proxy.url());
    println!(
        "| µs in commands per call | 1 in flight: with, without | saved | 64 in flight, 10k keys: with, without | saved |"
    );
    println!("| --- | ---: | ---: | ---: | ---: |");
    for name in NAMES {
        let cells =
            [ALONE, MANY_KEYS].map(|calls| cell(measured(&mut place, &urls, &Measured { name, calls })));
        println!("| {name} | {} |", cells.join(" | "));
    }
    for (name, strategy) in SETTLED {
        let cells = SETTLEMENTS.map(|settling| cell(settled(&mut place, &urls, (strategy, settling))));
        println!("| ours: {name}, settling | {} |", cells.join(" | "));
    }
    ExitCode::SUCCESS
}

/// Returns two columns of the table: the times with and without the short versions, and the share saved.
fn cell([with, without]: [f64; 2]) -> String {
    format!("{with:.1}, {without:.1} | {:.0} %", 100.0 * (1.0 - with / without))
}

/// Returns one median per address. The rounds of the two addresses alternate.
fn measured(place: &mut Place, urls: &[String; 2], measured: &Measured) -> [f64; 2] {
    let Measured { name, calls } = measured;
    // `FLUSHALL` keeps the loaded scripts.
    place.server.flush();
    let names = key_names(calls.keys);
    let contenders = urls.each_ref().map(|url| {
        let limiter = place.runtime.block_on(ours::limiter(url, calls.load));
        open_ours(name, calls.load, &names, limiter)
    });
    let mut known = 0;
    while known < 3 * calls.keys {
        known += contenders[0].drive(&place.runtime, calls.in_flight, SLICE).calls as usize;
    }
    let mut rounds = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (contender, times) in contenders.iter().zip(&mut rounds) {
            let before = place.server.spent();
            let tally = contender.drive(&place.runtime, calls.in_flight, SLICE);
            times.push((place.server.spent().commands - before.commands) / tally.calls as f64);
        }
    }
    rounds.map(|times| median(times).unwrap_or_default())
}

/// Returns the same for settlements. Only they are measured, not the reservations before them.
fn settled(place: &mut Place, urls: &[String; 2], (strategy, settling): (&str, Settling)) -> [f64; 2] {
    place.server.flush();
    let engines = urls.each_ref().map(|url| place.runtime.block_on(settling::engine(url, strategy)));
    let mut rounds = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (engine, times) in engines.iter().zip(&mut rounds) {
            let reserved = place.runtime.block_on(settling.reserve(engine));
            let before = place.server.spent();
            place.runtime.block_on(settling.settle(reserved));
            times.push((place.server.spent().commands - before.commands) / settling.keys as f64);
        }
    }
    rounds.map(|times| median(times).unwrap_or_default())
}
