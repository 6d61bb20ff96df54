//! Checks while rules change every second, alternating with rounds in which nothing changes.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::load::stored;
use super::rules;
use super::scene::{self, CHANGE, Scene};
use super::steady::{self, Latency};
use crate::measure::{Effort, median};
use crate::server::process::Server;

/// The number of rule changes in a round, one per second. Rounds are short, so that another process that
/// takes the processors for a moment spoils only one of many.
const CHANGES: usize = 5;
const ROUND: Duration = Duration::from_secs(CHANGES as u64);
const BETWEEN: Duration = Duration::from_secs(1);

/// The way in which rules change, and the server that has to load them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Disturbance {
    ByHand,
    ThroughAnother,
    ThroughItself,
    /// Rules of another database change. This separates the cost of the load from the lack of a processor.
    Elsewhere,
}

/// The effect on checks: medians over the rounds.
pub struct Harm {
    pub disturbance: Disturbance,
    pub calm: Latency,
    pub beside: Latency,
    /// The median of the rounds' ratios of p99.
    pub ratio: f64,
    /// Processor time of the checked server per change, in milliseconds, beyond its use in calm rounds.
    pub cpu_ms: f64,
}

impl Disturbance {
    pub const ALL: [Self; 4] = [Self::ByHand, Self::ThroughAnother, Self::ThroughItself, Self::Elsewhere];

    pub fn name(self) -> &'static str {
        match self {
            Self::ByHand => "a change by hand every second",
            Self::ThroughAnother => "a change through another server every second",
            Self::ThroughItself => "a change through the server itself every second",
            Self::Elsewhere => "a change every second that only another server loads",
        }
    }
}

pub fn measured(program: &Path, (count, effort): (usize, Effort<'_>)) -> Result<Vec<Harm>, String> {
    let (rounds, title) = match effort {
        Effort::Full => (9, ""),
        Effort::Quick(title) => (3, title),
    };
    let measured = |disturbance| {
        let (scene, server) = prepared(program, count)?;
        match disturbance {
            Disturbance::ByHand => harm(disturbance, (&server, rounds), || by_hand(&scene)),
            Disturbance::ThroughAnother => {
                let editor = scene.server()?;
                harm(disturbance, (&server, rounds), || through(&editor))
            }
            Disturbance::ThroughItself => harm(disturbance, (&server, rounds), || through(&server)),
            Disturbance::Elsewhere => {
                let (scene, _other) = prepared(program, count)?;
                harm(disturbance, (&server, rounds), || by_hand(&scene))
            }
        }
    };
    let wanted = Disturbance::ALL.into_iter().filter(|disturbance| disturbance.name().contains(title));
    wanted.map(measured).collect()
}

/// Starts a database with `count` rules, and a server that has them in force.
fn prepared(program: &Path, count: usize) -> Result<(Scene, Server), String> {
    let scene = Scene::start(program.to_owned())?;
    stored(&scene.server()?, &rules::set(count))?;
    let server = scene.server()?;
    Ok((scene, server))
}

/// Makes all changes of a round in one database session, so that no change pays for a new session.
fn by_hand(scene: &Scene) -> Result<(), String> {
    let script = format!("{CHANGE}; SELECT pg_sleep({});\n", BETWEEN.as_secs()).repeat(CHANGES);
    scene.database.sql(&script).map(drop).map_err(|error| error.to_string())
}

fn through(editor: &Server) -> Result<(), String> {
    let begun = Instant::now();
    for edition in 1..=CHANGES {
        scene::change_through(editor, edition as u64)?;
        let next = begun + BETWEEN * edition as u32;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

fn harm(
    disturbance: Disturbance,
    (server, rounds): (&Server, usize),
    disturb: impl Fn() -> Result<(), String> + Sync,
) -> Result<Harm, String> {
    let (mut calm, mut beside, mut cpu_ms) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let begun = server.cpu_seconds();
        calm.push(steady::checks(server.address, ROUND)?);
        let half = server.cpu_seconds();
        beside.push(thread::scope(|scope| {
            let disturbing = scope.spawn(&disturb);
            let latency = steady::checks(server.address, ROUND)?;
            disturbing.join().expect("changes that end").map(|()| latency)
        })?);
        let added = (server.cpu_seconds() - half) - (half - begun);
        cpu_ms.push(added * 1e3 / CHANGES as f64);
    }
    let ratios = calm.iter().zip(&beside).map(|(calm, beside)| beside.p99_us / calm.p99_us).collect();
    Ok(Harm {
        disturbance,
        calm: medians(&calm),
        beside: medians(&beside),
        ratio: median(ratios).unwrap_or(f64::NAN),
        cpu_ms: median(cpu_ms).unwrap_or(f64::NAN),
    })
}

fn medians(rounds: &[Latency]) -> Latency {
    let of = |part: fn(&Latency) -> f64| median(rounds.iter().map(part).collect()).unwrap_or(f64::NAN);
    Latency {
        p50_us: of(|latency| latency.p50_us),
        p99_us: of(|latency| latency.p99_us),
        p999_us: of(|latency| latency.p999_us),
    }
}
