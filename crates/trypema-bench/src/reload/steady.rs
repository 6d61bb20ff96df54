//! Checks at a steady rate, far below what the server can do: what is measured is what gets in their way.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use super::rules::QUESTION;
use crate::server::client::Client;

/// Connections that are kept open, each with a thread of its own.
const CONNECTIONS: u32 = 8;
/// How often each of them asks.
const EVERY: Duration = Duration::from_millis(4);
/// All of them together.
pub const PER_SECOND: u32 = CONNECTIONS * 250;

/// How long checks took.
#[derive(Clone, Copy)]
pub struct Latency {
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
}

/// Asks for so long.
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

/// How long each check of one connection took, in microseconds.
fn ask(address: SocketAddr, [mut due, end]: [Instant; 2]) -> Result<Vec<f64>, String> {
    let mut client = Client::connect(address).map_err(|error| error.to_string())?;
    let mut times = Vec::new();
    while due < end {
        let wait = due.saturating_duration_since(Instant::now());
        thread::sleep(wait);
        // Whoever wakes late does so by itself; but whoever still waited for an answer is late because of it.
        let since = if wait.is_zero() { due } else { Instant::now() };
        client.post("/v1/check", QUESTION).map_err(|error| error.to_string())?;
        times.push(since.elapsed().as_secs_f64() * 1e6);
        due += EVERY;
    }
    Ok(times)
}
