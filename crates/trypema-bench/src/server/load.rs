//! The load: wrk, which costs the least of the two cores that it shares with the server.
//!
//! A request costs wrk about two microseconds besides its system calls, and three where users take turns; a
//! generator on hyper would take as much as the servers do. What differs between contenders is the path and the
//! body that they are sent, nothing else.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::contender::Contender;
use super::place::Place;
use super::process::Server;
use super::workload::{HOT_USER, Workload};
use crate::keys;

const CONNECTIONS: u32 = 64;
/// One for each core.
const THREADS: u32 = 2;
/// As short as wrk can: many short rounds suffer less from what else the machine does than few long ones.
const SECONDS: u32 = 1;

/// What every script says at its end.
const DONE: &str = r#"
function done(summary, latency)
  local failed = summary.errors
  io.write(string.format("measured %d %d %d %d %d\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99),
    failed.connect + failed.read + failed.write + failed.timeout + failed.status))
end
"#;

/// Each thread walks through all users from a place of its own, by steps that reach all of them; the first begins at the
/// number that the script is given.
const WALK: &str = r#"
local threads = 0
function setup(thread)
  thread:set("number", threads)
  threads = threads + 1
end
function init(arguments)
  at = (tonumber(arguments[1]) + number * users / 2) % users
  local text = wrk.format()
  local from, to = text:find(string.format("%014d", hot_user), 1, true)
  before, after = text:sub(1, from - 1), text:sub(to + 1)
end
function request()
  at = (at + 7919) % users
  return before .. string.format("%014d", at) .. after
end
"#;

/// What one run of wrk measured.
#[derive(Clone, Copy)]
pub struct Load {
    pub requests: f64,
    pub seconds: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

/// Writes the script that asks one contender.
pub fn script(contender: Contender, workload: &Workload, place: &Place) -> Result<PathBuf, String> {
    let body = contender.body(workload, &keys::name(HOT_USER));
    let walk = if workload.users > 1 { WALK } else { "" };
    let text = format!(
        "wrk.method = 'POST'\nwrk.headers['Content-Type'] = 'application/json'\nwrk.body = '{body}'\n\
         users, hot_user = {}, {HOT_USER}\n{walk}{DONE}",
        workload.users
    );
    place.file(&format!("{}.lua", contender.path().replace('/', "_")), &text)
}

/// Asks the server for a while, walking on from where `begin` requests led.
pub fn run(server: &Server, path: &str, (script, begin): (&Path, u64)) -> Result<Load, String> {
    let mut wrk = Command::new("wrk");
    wrk.args([format!("--threads={THREADS}"), format!("--connections={CONNECTIONS}")]);
    wrk.arg(format!("--duration={SECONDS}s")).arg("--script").arg(script);
    let output =
        wrk.args([format!("http://{}{path}", server.address), "--".into(), begin.to_string()]).output();
    let output = output.map_err(|error| format!("wrk could not be started: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("measured "));
    let numbers: Vec<f64> = line.unwrap_or("").split(' ').filter_map(|number| number.parse().ok()).collect();
    match numbers[..] {
        [requests, micros, p50_us, p99_us, 0.0] if requests > 0.0 => {
            Ok(Load { requests, seconds: micros / 1e6, p50_us, p99_us })
        }
        _ => Err(format!("wrk failed: {text}{}", String::from_utf8_lossy(&output.stderr))),
    }
}
