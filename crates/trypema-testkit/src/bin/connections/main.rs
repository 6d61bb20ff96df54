//! Attacks the server from several loopback addresses, and measures the effect on a well-behaved client.
//!
//! `connections` alternates between seconds of each attack and of calm. Attackers hold more connections
//! than a peer may have, and reconnect as soon as they are closed. They run in a process that yields to all
//! others, so that the server is measured and not a lack of processors. `connections attack NAME ADDRESS`
//! is that process.
//!
//! On a machine with few processors the traffic alone delays everything. So the same attackers also attack
//! a server that does nothing (`connections sink`) while the client calls the real server. The delay
//! measured then is the floor.
//!
//! The server is the binary `trypema` in the same directory; `cargo xtask soak connections` builds both.

mod attack;
mod good_client;
mod service;
mod sink;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use attack::Attack;
use good_client::{GoodClient, Seen};
use service::Service;

const USAGE: &str = "usage: connections";
/// The number of alternations between calm and attack, so that a slow moment of the machine affects both.
const ROUNDS: usize = 3;
/// The duration of each phase.
const ROUND: Duration = Duration::from_secs(3);
/// The time for attackers to open their connections before the measurement starts.
const BEGIN: Duration = Duration::from_millis(500);
/// The maximum ratio of the p99 under attack to the p99 in calm.
const MAX_RATIO: f64 = 2.0;
/// The latency below which the scheduler of a small machine dominates, and not the server.
const NOISE_US: u64 = 2_000;

type Failure = Box<dyn std::error::Error>;

/// A process that only runs while no other needs the processor, as if it ran on another machine. Killed
/// when dropped.
struct Background(Child);

impl Background {
    /// Starts this program with other arguments.
    fn start(arguments: &[&str]) -> Result<Self, Failure> {
        let mut command = Command::new("chrt");
        command.args(["--idle", "0"]).arg(std::env::current_exe()?).args(arguments);
        Ok(Self(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?))
    }

    fn attackers(attack: Attack, address: SocketAddr) -> Result<Self, Failure> {
        Self::start(&["attack", attack.name(), &address.to_string()])
    }

    /// Starts a sink, and returns it with its address.
    fn sink() -> Result<(Self, SocketAddr), Failure> {
        let mut sink = Self::start(&["sink"])?;
        let output = sink.0.stdout.take().ok_or("the sink has no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        Ok((sink, line.trim_end().parse()?))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        [] => soak(),
        ["sink"] => sink::run().map(|()| true),
        ["attack", name, address] => attack::run(name, address).map(|()| true),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all attacks. Returns whether all results are within their bounds.
fn soak() -> Result<bool, Failure> {
    println!(
        "| attack | p50, p99 µs in calm | p99 µs beside the same attack on a sink | p50, p99 µs beside it | p99 ratio | failed | closed: peer_limit, out_of_memory | \
         buffered MiB, at most | resident MiB, at most |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let mut is_good = true;
    for attack in Attack::ALL {
        is_good &= measure(attack)?;
    }
    Ok(is_good)
}

/// Runs one attack on a new server. Returns whether the results of the client are within their bounds.
fn measure(attack: Attack) -> Result<bool, Failure> {
    let service = Service::start()?;
    let mut client = GoodClient::new(&service)?;
    client.ask_for(BEGIN)?;
    let [mut calm, mut floor, mut beside] = [(); 3].map(|()| Seen::default());
    for _ in 0..ROUNDS {
        calm.add(client.ask_for(ROUND)?);
        let (sink, sink_address) = Background::sink()?;
        floor.add(ask_beside(attack, sink_address, &mut client)?);
        drop(sink);
        beside.add(ask_beside(attack, service.address(), &mut client)?);
    }
    let closed = ["peer_limit", "out_of_memory"].map(|reason| service.closed(reason));
    let [calm_p50, calm_p99] = [50, 99].map(|percent| calm.percentile_us(percent));
    let floor_p99 = floor.percentile_us(99);
    let [beside_p50, beside_p99] = [50, 99].map(|percent| beside.percentile_us(percent));
    let ratio = beside_p99 as f64 / calm_p99 as f64;
    let is_late = ratio > MAX_RATIO && beside_p99 > NOISE_US;
    let is_good = !is_late && beside.failed == 0 && beside.buffered <= service::BUDGET;
    println!(
        "| {} | {}, {} | {floor_p99} | {}, {} | {ratio:.2} | {} | {}, {} | {:.1} | {:.1} |{}",
        attack.name(),
        calm_p50,
        calm_p99,
        beside_p50,
        beside_p99,
        beside.failed,
        closed[0],
        closed[1],
        mebibytes(beside.buffered),
        mebibytes(beside.resident),
        if is_good { "" } else { " missed" }
    );
    Ok(is_good)
}

/// Sends requests while the server at `address` is attacked.
fn ask_beside(attack: Attack, address: SocketAddr, client: &mut GoodClient<'_>) -> Result<Seen, Failure> {
    let attackers = Background::attackers(attack, address)?;
    client.ask_for(BEGIN)?;
    let seen = client.ask_for(ROUND)?;
    drop(attackers);
    // Give the attacked server time to notice that the connections have ended.
    client.ask_for(BEGIN)?;
    Ok(seen)
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}
