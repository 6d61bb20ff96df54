//! The time to store rules, to start with them and to bring a change into force, and the memory that they
//! need.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use trypema::rules::{RuleSet, Rules};

use super::rules;
use super::scene::{self, Scene};
use crate::measure::median;
use crate::server::process::Server;

const STARTS: usize = 5;
const LOADS: usize = 10;
/// The number of reloads after which the heap has reached its size. In the same number again it must not
/// grow.
const RELOADS: usize = 10;
/// Longer than the second for which a server keeps replaced rules.
const UNTIL_DROPPED: Duration = Duration::from_millis(1_200);
/// The number of checks that a server answers before its memory is measured.
const WARMING: usize = 2_000;

/// The times in milliseconds and the memory in bytes for one number of rules.
pub struct Sample {
    pub rules: usize,
    pub store_ms: f64,
    pub start_ms: f64,
    /// From a change made with SQL until it is in force.
    pub load_ms: Spread,
    /// Medians of two parts of that time.
    pub database_ms: f64,
    pub compile_ms: f64,
    /// From the request to one server until the change is in force on another.
    pub other_ms: Spread,
    pub memory: Memory,
}

#[derive(Clone, Copy)]
pub struct Spread {
    pub median: f64,
    pub worst: f64,
}

/// Resident bytes.
pub struct Memory {
    pub without_rules: f64,
    pub at_start: f64,
    pub after_one: f64,
    pub after_ten: f64,
    pub after_twenty: f64,
    pub peak: f64,
}

impl Memory {
    /// Returns the ratio of the memory after all reloads to the memory after half of them.
    pub fn growth(&self) -> f64 {
        self.after_twenty / self.after_ten
    }
}

pub fn measured(program: &Path, count: usize) -> Result<Sample, String> {
    let scene = Scene::start(program.to_owned())?;
    let editor = scene.server()?;
    warm(&editor)?;
    let without_rules = editor.resident_bytes();
    let rules = rules::set(count);
    let store_ms = stored(&editor, &rules)?;
    drop(editor);
    let start_ms = started(&scene)?;
    let (load_ms, database_ms) = loaded(&scene)?;
    Ok(Sample {
        rules: count,
        store_ms,
        start_ms,
        load_ms,
        database_ms,
        compile_ms: compiled(rules)?,
        other_ms: through_another(&scene)?,
        memory: remembered(&scene, without_rules)?,
    })
}

/// Stores all rules through a server and returns the time that it took.
pub fn stored(server: &Server, rules: &Value) -> Result<f64, String> {
    let (body, begun) = (rules.to_string(), Instant::now());
    server.admin_client().put("/v1/ruleset", &body).map_err(|error| format!("storing rules: {error}"))?;
    Ok(ms(begun.elapsed()))
}

/// Measures the time from the start of a process to its first response.
fn started(scene: &Scene) -> Result<f64, String> {
    let start = |_| {
        let begun = Instant::now();
        scene.server().map(|_| ms(begun.elapsed()))
    };
    let times = (0..STARTS).map(start).collect::<Result<Vec<f64>, String>>()?;
    Ok(spread(times).median)
}

/// Measures the time from a change made with SQL until it is in force on the only server, and the database's
/// part of it.
fn loaded(scene: &Scene) -> Result<(Spread, f64), String> {
    scene.log_statements()?;
    let server = scene.server()?;
    let (mut times, mut in_database) = (Vec::new(), Vec::new());
    for _ in 0..LOADS {
        let seen = scene.database.log().len();
        times.push(ms(scene.change_by_hand()?.until_in_force(&server)?));
        in_database.push(scene.logged_ms(seen));
        thread::sleep(UNTIL_DROPPED);
    }
    Ok((spread(times), spread(in_database).median))
}

/// Measures in this process the compilation that a server performs once it has read the rules.
fn compiled(rules: Value) -> Result<f64, String> {
    let rules: Rules = serde_json::from_value(rules).map_err(|error| error.to_string())?;
    let compile = |_| {
        let begun = Instant::now();
        RuleSet::compile(&rules).map(|_| ms(begun.elapsed())).map_err(|error| error.to_string())
    };
    let times = (0..LOADS).map(compile).collect::<Result<Vec<f64>, String>>()?;
    Ok(spread(times).median)
}

/// Measures the time from a change through one of two servers until it is in force on the other.
fn through_another(scene: &Scene) -> Result<Spread, String> {
    let (editor, other) = (scene.server()?, scene.server()?);
    let mut times = Vec::new();
    for edition in 0..LOADS {
        let begun = Instant::now();
        let revision = scene::change_through(&editor, 1_000 + edition as u64)?;
        scene::wait_for(&other, revision)?;
        times.push(ms(begun.elapsed()));
        thread::sleep(UNTIL_DROPPED);
    }
    Ok(spread(times))
}

fn remembered(scene: &Scene, without_rules: f64) -> Result<Memory, String> {
    let server = scene.server()?;
    warm(&server)?;
    let at_start = server.resident_bytes();
    let reload = || {
        scene.change_by_hand()?.until_in_force(&server)?;
        thread::sleep(UNTIL_DROPPED);
        Ok::<_, String>(server.resident_bytes())
    };
    let after_one = reload()?;
    let after_ten = last_of(RELOADS - 1, reload)?;
    let after_twenty = last_of(RELOADS, reload)?;
    let peak = server.peak_bytes();
    Ok(Memory { without_rules, at_start, after_one, after_ten, after_twenty, peak })
}

/// Makes `count` calls and returns the result of the last one.
fn last_of(count: usize, call: impl Fn() -> Result<f64, String>) -> Result<f64, String> {
    (0..count).try_fold(f64::NAN, |_, _| call())
}

fn warm(server: &Server) -> Result<(), String> {
    let mut client = server.client();
    let mut check = |_| client.post("/v1/check", rules::QUESTION).map_err(|error| error.to_string());
    (0..WARMING).try_for_each(|number| check(number).map(drop))
}

fn spread(times: Vec<f64>) -> Spread {
    let worst = times.iter().copied().fold(0.0, f64::max);
    Spread { median: median(times).unwrap_or(f64::NAN), worst }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
