//! Interleaved rounds and their medians.

use std::thread;
use std::time::Duration;

use super::contender::{EXACTLY, Load, NAMES, key_names, open, takes_part};
use super::drive::{Driven, Tally};
use super::server::{Place, Spent};
use crate::measure::{Effort, median};

/// The pause between two contenders, in which the first one's remaining calls finish.
const PAUSE: Duration = Duration::from_millis(15);

/// One column of the table.
pub struct Workload {
    pub title: &'static str,
    load: Load,
    in_flight: usize,
    keys: usize,
    /// The duration of the calls before every slice, which bring the keys into the state that the column
    /// measures.
    settle: Duration,
}

/// The length of a slice of calls that create the keys. The first one also loads the script.
const PRIMING: Duration = Duration::from_millis(50);

/// The number of calls per key before the rounds. Every key exists then, and is still young.
const CALLS_TO_BE_KNOWN: u64 = 3;

pub const ALONE: &str = "1 in flight";
pub const HOT_256: &str = "256 in flight, one key";
pub const MANY_KEYS: &str = "64 in flight, 10k keys";
pub const EXPIRING: &str = "64 in flight, 10k keys, each take expires a bucket";

pub fn workloads() -> Vec<Workload> {
    let column = |title, load, in_flight, keys| {
        // A window of a second is full by then, and its oldest buckets begin to expire.
        let settle = if load == Load::Expiring { Duration::from_millis(1_100) } else { Duration::ZERO };
        Workload { title, load, in_flight, keys, settle }
    };
    vec![
        column(ALONE, Load::Plenty, 1, 1),
        column("64 in flight, one key", Load::Plenty, 64, 1),
        column(HOT_256, Load::Plenty, 256, 1),
        column(MANY_KEYS, Load::Young, 64, 10_000),
        column(EXPIRING, Load::Expiring, 64, 10_000),
        column("64 in flight, one key, denied", Load::Scarce, 64, 1),
    ]
}

/// The result of one contender in one column.
#[derive(Clone, Copy)]
pub struct Sample {
    pub calls_per_second: f64,
    /// Microseconds per call inside Redis commands.
    pub command_us: f64,
    /// Microseconds of Redis's processor time per call.
    pub cpu_us: f64,
}

fn rounds(effort: Effort<'_>) -> usize {
    if effort == Effort::Full { 7 } else { 3 }
}

fn slice(effort: Effort<'_>) -> Duration {
    Duration::from_millis(if effort == Effort::Full { 350 } else { 100 })
}

/// Measures the contenders that take part and are `wanted`, with one slice each per round.
pub fn column(
    place: &mut Place,
    (workload, effort): (&Workload, Effort<'_>),
    wanted: impl Fn(&str) -> bool,
) -> Vec<Option<Sample>> {
    place.server.flush();
    let (url, names) = (place.server.url(), key_names(workload.keys));
    let opened = |name: &&str| {
        (takes_part(name, workload.load) && wanted(name))
            .then(|| place.runtime.block_on(open(name, workload.load, (&url, &names))))
    };
    let contenders: Vec<Option<Box<dyn Driven>>> = NAMES.iter().map(opened).collect();
    contenders.iter().flatten().for_each(|contender| make_keys_known(place, contender.as_ref(), workload));
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); NAMES.len()];
    for _ in 0..rounds(effort) {
        for (at, contender) in contenders.iter().enumerate() {
            let Some(contender) = contender else { continue };
            contender.drive(&place.runtime, workload.in_flight, workload.settle);
            let before = place.server.spent();
            let tally = contender.drive(&place.runtime, workload.in_flight, slice(effort));
            samples[at].push(Sample::new(&tally, before, place.server.spent()));
            warn(NAMES[at], &tally, workload);
            thread::sleep(PAUSE);
        }
    }
    samples.iter().map(|samples| median_of(samples)).collect()
}

fn make_keys_known(place: &Place, contender: &dyn Driven, workload: &Workload) {
    let mut calls = 0;
    while calls < CALLS_TO_BE_KNOWN * workload.keys as u64 {
        calls += contender.drive(&place.runtime, workload.in_flight, PRIMING).calls;
    }
}

impl Sample {
    fn new(tally: &Tally, before: Spent, after: Spent) -> Self {
        let calls = tally.calls as f64;
        Self {
            calls_per_second: (tally.calls - tally.failed) as f64 / tally.took.as_secs_f64(),
            command_us: (after.commands - before.commands) / calls,
            cpu_us: (after.cpu - before.cpu) / calls,
        }
    }
}

/// Prints a warning if calls failed, or if their outcomes are not those that the column measures.
fn warn(name: &str, tally: &Tally, workload: &Workload) {
    if tally.failed > 0 {
        eprintln!("  {name}: {} of {} calls failed: {}", tally.failed, tally.calls, tally.failure);
    }
    let answered = tally.calls - tally.failed;
    let expected = if workload.load == Load::Scarce { 0 } else { answered };
    if tally.admitted.abs_diff(expected) * 100 > answered {
        eprintln!("  {name}: {} of {answered} calls were admitted", tally.admitted);
    }
}

fn median_of(samples: &[Sample]) -> Option<Sample> {
    let of = |part: fn(&Sample) -> f64| median(samples.iter().map(part).collect());
    Some(Sample {
        calls_per_second: of(|sample| sample.calls_per_second)?,
        command_us: of(|sample| sample.command_us)?,
        cpu_us: of(|sample| sample.cpu_us)?,
    })
}

/// Returns, for each contender, how far it ends from its limit with 256 concurrent callers on one key.
pub fn exactness(place: &mut Place) -> Vec<(&'static str, f64)> {
    let (url, names) = (place.server.url(), key_names(1));
    let counted = NAMES.iter().filter(|name| takes_part(name, Load::Counted));
    let mut miss = |name: &&'static str| {
        place.server.flush();
        let contender = place.runtime.block_on(open(name, Load::Counted, (&url, &names)));
        let (mut calls, mut admitted) = (0, 0);
        while calls < 2 * EXACTLY {
            let tally = contender.drive(&place.runtime, 256, Duration::from_millis(50));
            calls += tally.calls.max(1);
            admitted += tally.admitted;
        }
        (*name, admitted.abs_diff(EXACTLY) as f64)
    };
    counted.map(&mut miss).collect()
}
