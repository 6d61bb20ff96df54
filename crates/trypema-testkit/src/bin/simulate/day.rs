//! A day of a large fleet, and the load on its Redis.

use std::fmt::Write;
use std::time::Duration;

use trypema::TrypemaError;
use trypema::strategy::{TokenBucket, TokenBucketLimits, TokenLimit};
use trypema_testkit::random::Random;
use trypema_testkit::simulator::fleet::{Fleet, Journal, Offer, Requests};
use trypema_testkit::svg::thousands;

use crate::chart::Chart;
use crate::report::{DATA_CENTRE, Picture, Section};

const INSTANCES: u32 = 1_000;
const KEYS: usize = 1_000_000;
/// The hours of the day. Each is simulated as one second, at the rate of that hour.
const HOURS: u64 = 24;
/// The mean rate of all instances together, in calls per second. At four in the morning the rate is a fifth
/// of it, twelve hours later 1.8 times as much.
const MEAN: f64 = 250_000.0;
const SWING: f64 = 0.8;
const QUIETEST_HOUR: f64 = 4.0;

/// The capacity of each key's bucket: 100 calls a second, 1,000 at once.
const CAPACITY: u64 = 1_000;
const REFILL: Duration = Duration::from_secs(10);

/// The CPU time of a take from a token bucket in Redis, in microseconds; measured, see docs/performance.md.
const TAKE_US: f64 = 11.8;
/// The CPU time of a lease in Redis, in microseconds. Not measured: assumed to equal the slowest script
/// call in docs/performance.md, that of the abuse strategy, because both run the complete script.
const LEASE_US: f64 = 35.1;
/// The maximum utilisation of a Redis server at peak.
const BUSY: f64 = 0.6;

/// The number of instances that receive calls of one key.
const ROUTES: [u32; 3] = [1_000, 32, 1];

/// Ranges of key ranks.
const BANDS: [[usize; 2]; 5] = [[0, 10], [10, 100], [100, 1_000], [1_000, 10_000], [10_000, KEYS]];

struct Day {
    route: u32,
    journal: Journal,
}

/// Simulates the day for each routing.
pub(crate) fn sections() -> Result<Vec<Section>, TrypemaError> {
    let limit = TokenBucketLimits::from(TokenLimit::new(CAPACITY, REFILL)?);
    let days: Vec<Day> = ROUTES.iter().map(|route| played(&limit, *route)).collect();
    Ok(vec![
        Section { name: "day", text: summary(&days), picture: Some(picture(&days)) },
        Section { name: "ranks", text: bands(&days), picture: None },
        Section { name: "cluster", text: cluster(&days), picture: None },
    ])
}

fn played(limit: &TokenBucketLimits, route: u32) -> Day {
    let fleet = Fleet::<TokenBucket>::new(limit.clone()).instances(INSTANCES as usize);
    let fleet = Fleet { deadline_us: 50_000, ..fleet.network(DATA_CENTRE) };
    Day { route, journal: fleet.run(offers(route)) }
}

/// Generates Poisson traffic, with more calls by day than by night. Key k is called in proportion to 1 / (k
/// + 1).
fn offers(route: u32) -> impl Iterator<Item = Offer> {
    let mut random = Random::seeded(24);
    let shares = shares();
    let mut after_us = 0.0;
    std::iter::from_fn(move || {
        loop {
            after_us += -(1.0 - chance(&mut random)).ln() * 1e6 / (MEAN * (1.0 + SWING));
            if after_us >= HOURS as f64 * 1e6 {
                return None;
            }
            if chance(&mut random) < rate(after_us / 1e6) / (MEAN * (1.0 + SWING)) {
                break;
            }
        }
        let drawn = chance(&mut random);
        let key = shares.partition_point(|share| *share <= drawn).min(KEYS - 1) as u32;
        let place = random.below(u64::from(route)) as u32;
        Some(Offer { after_us: after_us as u64, instance: scattered(key, place), key, cost: 1 })
    })
}

fn rate(hour: f64) -> f64 {
    let turn = (hour - QUIETEST_HOUR) / HOURS as f64 * std::f64::consts::TAU;
    MEAN * (1.0 - SWING * turn.cos())
}

fn chance(random: &mut Random) -> f64 {
    const STEPS: u64 = 1 << 53;
    random.below(STEPS) as f64 / STEPS as f64
}

/// Returns the cumulative share of calls for each key.
fn shares() -> Vec<f64> {
    let total: f64 = (1..=KEYS).map(|rank| 1.0 / rank as f64).sum();
    let mut sum = 0.0;
    let share = |rank: usize| {
        sum += 1.0 / rank as f64 / total;
        sum
    };
    (1..=KEYS).map(share).collect()
}

/// Returns one of the instances that a key is routed to. Neighbouring keys are routed to unrelated
/// instances.
fn scattered(key: u32, place: u32) -> u32 {
    let start = Random::seeded(u64::from(key)).next_u64() % u64::from(INSTANCES);
    ((start + u64::from(place)) % u64::from(INSTANCES)) as u32
}

fn route(day: &Day) -> String {
    match day.route {
        INSTANCES => "any instance".to_owned(),
        1 => "one instance per key".to_owned(),
        route => format!("{route} instances per key"),
    }
}

fn share(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}

fn summary(days: &[Day]) -> String {
    let mut text = String::from(
        "| calls come through | calls | admitted | not taken one by one | requests: takes | leases | per call |\n",
    );
    text.push_str("| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    for day in days {
        let calls = day.journal.offers.len() as u64;
        let Requests { takes, leases } = sum(&day.journal.per_key);
        let admitted = day.journal.admitted();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {:.3} |",
            route(day),
            thousands(calls),
            share(admitted, calls),
            share(calls.saturating_sub(takes), calls),
            thousands(takes),
            thousands(leases),
            (takes + leases) as f64 / calls as f64,
        );
    }
    text
}

fn sum(requests: &[Requests]) -> Requests {
    let add = |sum: Requests, one: &Requests| Requests {
        takes: sum.takes + one.takes,
        leases: sum.leases + one.leases,
    };
    requests.iter().fold(Requests::default(), add)
}

fn bands(days: &[Day]) -> String {
    let mut text = String::from("| keys by rank | share of calls |");
    days.iter().for_each(|day| {
        let _ = write!(text, " {} |", route(day));
    });
    text.push_str("\n| --- | ---: |");
    text.push_str(&" ---: |".repeat(days.len()));
    for [first, end] in BANDS {
        let _ = write!(text, "\n| {} to {} |", thousands(first as u64 + 1), thousands(end as u64));
        for (place, day) in days.iter().enumerate() {
            let in_band = |key: u32| (first..end).contains(&(key as usize));
            let calls = day.journal.offers.iter().filter(|offer| in_band(offer.key)).count() as u64;
            if place == 0 {
                let _ = write!(text, " {} |", share(calls, day.journal.offers.len() as u64));
            }
            let per_key = &day.journal.per_key;
            let requests = sum(&per_key[first.min(per_key.len())..end.min(per_key.len())]).total();
            let _ = write!(text, " {:.3} |", requests as f64 / calls.max(1) as f64);
        }
    }
    text.push('\n');
    text
}

/// Returns the CPU time of requests in Redis, in seconds.
fn cpu_s(requests: Requests) -> f64 {
    (requests.takes as f64 * TAKE_US + requests.leases as f64 * LEASE_US) / 1e6
}

fn cluster(days: &[Day]) -> String {
    let mut text = String::from(
        "| calls come through | calls/s in the busiest hour | without leases: CPUs | shards | with leases: requests/s | CPUs | shards | \
         of the busiest key |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for day in days {
        let mut calls = [0; HOURS as usize + 1];
        for offer in &day.journal.offers {
            let hour = (offer.at_us - Fleet::<TokenBucket>::START_US) / 1_000_000;
            calls[(hour as usize).min(HOURS as usize)] += 1;
        }
        let most = calls.iter().copied().max().unwrap_or(0);
        let busiest =
            day.journal.per_second.iter().copied().max_by(|one, other| cpu_s(*one).total_cmp(&cpu_s(*other)));
        let busiest = busiest.unwrap_or_default();
        let plain_s = cpu_s(Requests { takes: most, leases: 0 });
        let hot = day.journal.per_key.first().copied().unwrap_or_default();
        let _ = writeln!(
            text,
            "| {} | {} | {plain_s:.2} | {} | {} | {:.2} | {} | {:.3} |",
            route(day),
            thousands(most),
            (plain_s / BUSY).ceil(),
            thousands(busiest.total()),
            cpu_s(busiest),
            (cpu_s(busiest) / BUSY).ceil(),
            cpu_s(hot) / HOURS as f64,
        );
    }
    text
}

fn picture(days: &[Day]) -> Picture {
    let hours: Vec<f64> = (0..HOURS).map(|hour| hour as f64).collect();
    let chart = Chart {
        description: "Calls and requests to Redis per second, hour by hour",
        title: "Thousands per second, hour by hour",
        across: "hour of the day",
        xs: &hours,
        top: 500.0,
        step: 100.0,
    };
    let offered: Vec<f64> = hours.iter().map(|hour| rate(hour + 0.5) / 1e3).collect();
    let mut curves = vec![("calls".to_owned(), offered)];
    for day in days {
        let per_hour = day.journal.per_second.iter().take(HOURS as usize);
        curves.push((
            format!("requests, {}", route(day)),
            per_hour.map(|one| one.total() as f64 / 1e3).collect(),
        ));
    }
    Picture { file: "hybrid-day.svg", svg: chart.drawn(&curves) }
}
