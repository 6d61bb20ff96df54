//! The load generator: wrk, which uses little of the two cores that it shares with the server.
//!
//! A request costs wrk about two microseconds besides its system calls, and three if users take turns. A
//! generator on hyper would use as much as the servers do. The requests to the contenders differ only in path
//! and body.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::contender::Contender;
use super::place::Place;
use super::process::Server;
use super::workload::{HOT_USER, Workload};
use crate::keys;

const CONNECTIONS: u32 = 64;
/// One thread per core.
const THREADS: u32 = 2;
/// The shortest run that wrk allows. Many short rounds suffer less from other load on the machine than a few
/// long ones.
const SECONDS: u32 = 1;

/// The function at the end of every script, which prints the results.
const DONE: &str = r#"
function done(summary, latency)
  local failed = summary.errors
  io.write(string.format("measured %d %d %d %d %d\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99),
    failed.connect + failed.read + failed.write + failed.timeout + failed.status))
end
"#;

/// Makes each thread visit all users from its own starting point, in steps that reach all of them. The first
/// thread starts at the number that is passed to the script.
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

/// The result of one run of wrk.
#[derive(Clone, Copy)]
pub struct Load {
    pub requests: f64,
    pub seconds: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

/// Writes the wrk script for one contender.
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

/// Runs wrk against the server. The walk through the users continues after the first `begin` requests.
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
