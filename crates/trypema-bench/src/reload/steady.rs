//! Checks at a steady rate, far below the server's capacity, so that the latency shows only interference.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use super::rules::QUESTION;
use crate::server::client::Client;

/// The number of connections that stay open, each with its own thread.
const CONNECTIONS: u32 = 8;
/// The interval between two checks of a connection.
const EVERY: Duration = Duration::from_millis(4);
/// The rate of all connections together.
pub const PER_SECOND: u32 = CONNECTIONS * 250;

/// The latency of the checks.
#[derive(Clone, Copy)]
pub struct Latency {
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
}

/// Sends checks for the given duration and returns their latency.
pub fn checks(address: SocketAddr, lasting: Duration) -> Result<Latency, String> {
    let begin = Instant::now();
    let connection = |number| ask(address, [begin + EVERY / CONNECTIONS * number, begin + lasting]);
    let times = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..CONNECTIONS).map(|number| scope.spawn(move || connection(number))).collect();
        let all = threads.into_iter().map(|thread| thread.join().expect("a connection that ends"));
        all.collect::<Result<Vec<_>, String>>()
    })?;
    let mut times: Vec<f64> = times.into_iter().flatten().collect();
    times.sort_by(f64::total_cmp);
    let part = |thousandths: usize| times[times.len() * thousandths / 1_000];
    Ok(Latency { p50_us: part(500), p99_us: part(990), p999_us: part(999) })
}

/// Sends the checks of one connection and returns the latency of each, in microseconds.
fn ask(address: SocketAddr, [mut due, end]: [Instant; 2]) -> Result<Vec<f64>, String> {
    let mut client = Client::connect(address).map_err(|error| error.to_string())?;
    let mut times = Vec::new();
    while due < end {
        let wait = due.saturating_duration_since(Instant::now());
        thread::sleep(wait);
        // A late wake-up is not the server's fault, so the time starts now. If the previous response was
        // late, this check is late because of the server, and the time starts when the check was due.
        let since = if wait.is_zero() { due } else { Instant::now() };
        client.post("/v1/check", QUESTION).map_err(|error| error.to_string())?;
        times.push(since.elapsed().as_secs_f64() * 1e6);
        due += EVERY;
    }
    Ok(times)
}
