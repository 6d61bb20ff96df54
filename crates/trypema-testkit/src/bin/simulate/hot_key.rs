//! One key that all instances call.

use std::fmt::Write;
use std::time::Duration;

use trypema::TrypemaError;
use trypema::strategy::{Absolute, AbsoluteLimit, Leasable, for_each_strategy};
use trypema_testkit::simulator::fleet::{Fleet, HasInvariant, Journal, Measures, Network, Traffic};
use trypema_testkit::subject::Modelled;
use trypema_testkit::svg::thousands;

use crate::chart::Chart;
use crate::report::{DATA_CENTRE, Picture, Section};

/// The limit of all instances together.
const CAPACITY: u64 = 100_000;
const WINDOW: Duration = Duration::from_secs(10);
const WINDOW_US: u64 = 10_000_000;
/// The loads in calls per second: below the limit, and far above it.
const LOADS: [f64; 2] = [9_000.0, 40_000.0];
const SECONDS: u64 = 30;

const SIZES: [u32; 4] = [1, 10, 100, 1_000];
const ROUND_TRIPS_MS: [u64; 6] = [0, 1, 5, 20, 50, 100];
const PARTS: [u32; 5] = [1, 2, 4, 8, 16];

struct Row {
    name: String,
    measures: Measures,
    worst: u64,
    journal: Journal,
}

/// Simulates all sections about one hot key.
pub(crate) fn sections() -> Result<Vec<Section>, TrypemaError> {
    let sizes = sizes()?;
    Ok(vec![
        Section { name: "strategies", text: table("strategy", &strategies()?), picture: None },
        Section { name: "instances", text: table("instances", &sizes), picture: Some(picture(&sizes)) },
        Section { name: "network", text: table("ms each way", &delays()?), picture: None },
        Section { name: "parts", text: parts_table(&parts()?), picture: None },
    ])
}

fn picture(sizes: &[Row]) -> Picture {
    let per_second = |load: usize| -> Vec<f64> {
        sizes.iter().skip(load).step_by(2).map(|row| row.per_second(row.measures.messages) / 1e3).collect()
    };
    let chart = Chart {
        description: "Requests per second for one hot key, by the number of instances",
        title: "Thousands per second for one hot key",
        across: "instances",
        xs: &SIZES.map(f64::from),
        top: 40.0,
        step: 10.0,
    };
    let svg = chart.drawn(&[
        ("calls, 4 × the limit".to_owned(), SIZES.map(|_| LOADS[1] / 1e3).to_vec()),
        ("requests, 4 × the limit".to_owned(), per_second(1)),
        ("requests, 0.9 × the limit".to_owned(), per_second(0)),
    ]);
    Picture { file: "hybrid-instances.svg", svg }
}

impl Row {
    fn per_second(&self, requests: u64) -> f64 {
        requests as f64 / SECONDS as f64
    }
}

fn row<S: HasInvariant>(name: &str, limit: &S::Limit, fleet: Fleet<S>, load: f64) -> Row {
    let traffic = Traffic::steady(load, fleet.clocks.len() as u32, SECONDS);
    let journal = Fleet { sample_us: 50_000, deadline_us: 1_000_000, ..fleet }.run(traffic.offers());
    let measures = Measures::of::<S>(limit, &journal);
    let worst = journal.of_key(0).worst_window(WINDOW_US);
    let name = format!("{name}, {} ×", load * 10.0 / CAPACITY as f64);
    Row { name, measures, worst, journal }
}

fn both<S: HasInvariant>(name: &str, limit: &S::Limit, fleet: impl Fn() -> Fleet<S>) -> [Row; 2] {
    LOADS.map(|load| row(name, limit, fleet(), load))
}

fn fleet<S: Leasable>(limit: &S::Limit, instances: u32) -> Fleet<S> {
    Fleet::<S>::new(limit.clone()).instances(instances as usize).network(DATA_CENTRE)
}

fn strategies() -> Result<Vec<Row>, TrypemaError> {
    fn of<S: HasInvariant>(limit: &S::Limit) -> [Row; 2] {
        both(&S::NAME.replace('_', " "), limit, || fleet::<S>(limit, 20))
    }
    let mut rows = Vec::new();
    macro_rules! rows {
        ($($number:literal $type:ident $name:ident $limit:ident;)+) => {
            $(if trypema::strategy::$type::IS_LEASED {
                rows.extend(of::<trypema::strategy::$type>(&trypema::strategy::$type::sized(CAPACITY, WINDOW)?));
            })+
        };
    }
    for_each_strategy! { [rows] }
    Ok(rows)
}

fn sizes() -> Result<Vec<Row>, TrypemaError> {
    let limit = AbsoluteLimit::per_window(CAPACITY, WINDOW)?;
    let rows = SIZES.map(|size| both(&size.to_string(), &limit, || fleet::<Absolute>(&limit, size)));
    Ok(rows.into_iter().flatten().collect())
}

fn delays() -> Result<Vec<Row>, TrypemaError> {
    let limit = AbsoluteLimit::per_window(CAPACITY, WINDOW)?;
    let rows = ROUND_TRIPS_MS.map(|ms| {
        let network = Network::of_millis(ms, ms);
        both(&ms.to_string(), &limit, || fleet::<Absolute>(&limit, 20).network(network))
    });
    Ok(rows.into_iter().flatten().collect())
}

fn parts() -> Result<Vec<Row>, TrypemaError> {
    let whole = AbsoluteLimit::per_window(CAPACITY, WINDOW)?;
    let mut rows = Vec::new();
    for count in PARTS {
        let part = AbsoluteLimit::per_window(CAPACITY / u64::from(count), WINDOW)?;
        let split = || Fleet { parts: count, ..fleet::<Absolute>(&part, 200) };
        rows.extend(both(&count.to_string(), &whole, split));
    }
    Ok(rows)
}

fn table(first: &str, rows: &[Row]) -> String {
    let mut text = format!(
        "| {first}, load | requests/s | calls per request | most in 10 s | of exact | wrongly denied | fairness | most held |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    );
    for row in rows {
        let _ = writeln!(
            text,
            "| {} | {} | {:.1} | {} | {:.1} % | {:.1} % | {:.3} | {:.1} % |",
            row.name,
            thousands(row.per_second(row.measures.messages) as u64),
            row.measures.calls_per_message(),
            thousands(row.worst),
            100.0 * row.measures.share_of_exact(),
            100.0 * row.measures.wrong_share(),
            row.measures.fairness,
            100.0 * row.measures.most_held as f64 / CAPACITY as f64,
        );
    }
    text
}

fn parts_table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| parts, load | requests/s | for the busiest part | calls per request | most in 10 s | of exact | wrongly denied |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for row in rows {
        let busiest = row.journal.per_key.iter().map(|one| one.total()).max().unwrap_or(0);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.1} | {} | {:.1} % | {:.1} % |",
            row.name,
            thousands(row.per_second(row.measures.messages) as u64),
            thousands(row.per_second(busiest) as u64),
            row.measures.calls_per_message(),
            thousands(row.worst),
            100.0 * row.measures.share_of_exact(),
            100.0 * row.measures.wrong_share(),
        );
    }
    text
}
