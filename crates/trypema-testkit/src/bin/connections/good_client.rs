//! A well-behaved client, which measures the latency of its requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use trypema::clock::{Clock, SystemClock};

use crate::Failure;
use crate::service::Service;

/// The delay between two requests: this measures latency, not throughput.
const PACE: Duration = Duration::from_millis(2);
/// The interval, in requests, between two batches, which need some of the memory budget.
const BATCH_EVERY: usize = 10;
const CHECKS: usize = 20;
/// The interval, in requests, between two readings of the server's memory.
const LOOK_EVERY: usize = 100;
const PATIENCE: Duration = Duration::from_secs(10);
const CHECK: &str = r#"{"attributes":{"user":"ann"}}"#;

/// The client. It alternates between a persistent connection and a new one.
pub(crate) struct GoodClient<'s> {
    service: &'s Service,
    kept: BufReader<TcpStream>,
}

/// The results of the client's requests.
#[derive(Default)]
pub(crate) struct Seen {
    times_us: Vec<u64>,
    /// The number of requests without a 200 response.
    pub(crate) failed: usize,
    /// The maximum bytes of bodies and unread responses, and of resident memory.
    pub(crate) buffered: u64,
    pub(crate) resident: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, more: Self) {
        self.times_us.extend(more.times_us);
        self.failed += more.failed;
        self.buffered = self.buffered.max(more.buffered);
        self.resident = self.resident.max(more.resident);
    }

    /// Returns the latency within which this percentage of requests was answered; 0 without requests.
    pub(crate) fn percentile_us(&mut self, percent: usize) -> u64 {
        self.times_us.sort_unstable();
        self.times_us.get(self.times_us.len() * percent / 100).copied().unwrap_or(0)
    }
}

impl<'s> GoodClient<'s> {
    pub(crate) fn new(service: &'s Service) -> Result<Self, Failure> {
        Ok(Self { service, kept: connect(service)? })
    }

    /// Sends requests for this long.
    pub(crate) fn ask_for(&mut self, time: Duration) -> Result<Seen, Failure> {
        let end = SystemClock.now() + time;
        let mut seen = Seen::default();
        while SystemClock.now() < end {
            let number = seen.times_us.len();
            let body = if number.is_multiple_of(BATCH_EVERY) { batch() } else { CHECK.to_owned() };
            let before = SystemClock.now();
            let answered = self.ask(number, &body);
            seen.times_us.push(SystemClock.now().as_micros().saturating_sub(before.as_micros()));
            if !matches!(answered, Ok(200)) {
                seen.failed += 1;
                self.kept = connect(self.service)?;
            }
            if number.is_multiple_of(LOOK_EVERY) {
                seen.buffered = seen.buffered.max(self.service.buffered());
                seen.resident = seen.resident.max(self.service.resident());
            }
            thread::sleep(PACE);
        }
        Ok(seen)
    }

    fn ask(&mut self, number: usize, body: &str) -> std::io::Result<u16> {
        if number.is_multiple_of(2) {
            send(&mut self.kept, body)
        } else {
            send(&mut connect(self.service)?, body)
        }
    }
}

fn batch() -> String {
    format!("[{}]", [CHECK; CHECKS].join(","))
}

fn connect(service: &Service) -> std::io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(service.address())?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(BufReader::new(stream))
}

/// Sends a check, reads the response, and returns its status.
fn send(connection: &mut BufReader<TcpStream>, body: &str) -> std::io::Result<u16> {
    let length = body.len();
    let request = format!("POST /v1/check HTTP/1.1\r\nhost: soak\r\ncontent-length: {length}\r\n\r\n{body}");
    connection.get_mut().write_all(request.as_bytes())?;
    let mut line = String::new();
    connection.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let mut length = 0;
    while line.trim_end() != "" {
        line.clear();
        connection.read_line(&mut line)?;
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim_end().parse().unwrap_or(0);
        }
    }
    let mut answer = vec![0; length];
    connection.read_exact(&mut answer)?;
    Ok(status)
}
