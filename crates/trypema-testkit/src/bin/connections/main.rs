//! Attacks the service from addresses of its own, and measures what a good client notices.
//!
//! `connections`: each attack lasts some seconds, after as many of calm. Attackers hold more connections than a peer may have, and
//! reconnect as soon as they are closed. They run in a process with the lowest priority: what is measured is the service, and not the
//! lack of a processor. `connections attack NAME ADDRESS` is that process.
//!
//! The service is the binary `trypema` beside this one; `cargo xtask soak connections` builds both.

mod attack;
mod good_client;
mod service;

use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use attack::Attack;
use good_client::GoodClient;
use service::Service;

const USAGE: &str = "usage: connections";
/// How long calm and attack last, each.
const ROUND: Duration = Duration::from_secs(3);
/// How long attackers have to open their connections before anything is measured.
const BEGIN: Duration = Duration::from_millis(500);
/// The highest ratio of the p99 under attack to the p99 in calm.
const MAX_RATIO: f64 = 2.0;
/// Below this the scheduler of a small machine decides, and not the service.
const NOISE_US: u64 = 2_000;

type Failure = Box<dyn std::error::Error>;

/// An attack that is under way; it ends when dropped.
struct Attackers(Child);

impl Attackers {
    fn start(attack: Attack, address: SocketAddr) -> Result<Self, Failure> {
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(std::env::current_exe()?);
        command.args(["attack", attack.name(), &address.to_string()]).stdin(Stdio::piped());
        Ok(Self(command.spawn()?))
    }
}

impl Drop for Attackers {
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

/// Plays all attacks; whether every bar holds.
fn soak() -> Result<bool, Failure> {
    println!(
        "| attack | p50, p99 µs in calm | p50, p99 µs beside it | p99 ratio | failed | closed: peer_limit, out_of_memory | \
         buffered MiB, at most | resident MiB, at most |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let mut is_good = true;
    for attack in Attack::ALL {
        is_good &= measure(attack)?;
    }
    Ok(is_good)
}

/// Plays one attack on a service of its own; whether the good client was served as it should be.
fn measure(attack: Attack) -> Result<bool, Failure> {
    let service = Service::start()?;
    let mut client = GoodClient::new(&service)?;
    client.ask_for(BEGIN)?;
    let calm = client.ask_for(ROUND)?;
    let attackers = Attackers::start(attack, service.address())?;
    client.ask_for(BEGIN)?;
    let beside = client.ask_for(ROUND)?;
    let closed = ["peer_limit", "out_of_memory"].map(|reason| service.closed(reason));
    drop(attackers);
    let ratio = beside.p99_us as f64 / calm.p99_us as f64;
    let is_late = ratio > MAX_RATIO && beside.p99_us > NOISE_US;
    let is_good = !is_late && beside.failed == 0 && beside.buffered <= service::BUDGET;
    println!(
        "| {} | {}, {} | {}, {} | {ratio:.2} | {} | {}, {} | {:.1} | {:.1} |{}",
        attack.name(),
        calm.p50_us,
        calm.p99_us,
        beside.p50_us,
        beside.p99_us,
        beside.failed,
        closed[0],
        closed[1],
        mebibytes(beside.buffered),
        mebibytes(beside.resident),
        if is_good { "" } else { " missed" }
    );
    Ok(is_good)
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}
