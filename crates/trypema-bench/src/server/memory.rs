//! The cost of an idle connection: resident memory of the server, without the kernel's buffers.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::client::Client;
use super::contender::Contender;
use super::place::Place;
use super::process::Server;
use super::workload::{HOT_USER, WORKLOADS, Workload};

const CONNECTIONS: usize = 1_000;
/// The number of requests sent over one connection first, so that memory that only the first requests need is
/// not counted.
const WARMING: usize = 2_000;
/// The time allowed for the server to accept all connections. A client's connect succeeds before the server
/// accepts.
const ACCEPT_DEADLINE: Duration = Duration::from_secs(5);
const POLL_EVERY: Duration = Duration::from_millis(10);

/// The bytes per connection.
pub struct Idle {
    pub contender: Contender,
    /// A connection that stays open after one request.
    pub kept_alive: f64,
    /// A connection over which nothing is sent.
    pub silent: f64,
}

pub fn measured(place: &Place) -> Result<Vec<Idle>, String> {
    allow_open_files();
    let workload = &WORKLOADS[0];
    let idle = |contender: Contender| {
        let asks = |client: &mut Client| contender.ask(workload, client, HOT_USER).map(|_| ());
        Ok(Idle {
            contender,
            kept_alive: bytes_each(&warm(contender, workload, place)?, asks)?,
            silent: bytes_each(&warm(contender, workload, place)?, |_| Ok(()))?,
        })
    };
    Contender::ALL.into_iter().map(idle).collect()
}

/// Raises the limit of open files of this process, and of the servers that it starts, to the maximum.
pub fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // If this fails, the connections will fail.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

fn warm(contender: Contender, workload: &Workload, place: &Place) -> Result<Server, String> {
    let server = contender.start(workload, place)?;
    let mut client = server.client();
    for _ in 0..WARMING {
        contender.ask(workload, &mut client, HOT_USER)?;
    }
    Ok(server)
}

/// Opens connections, calls `each` for every one, and returns the memory per connection that the server has
/// gained.
fn bytes_each(
    server: &Server,
    mut each: impl FnMut(&mut Client) -> Result<(), String>,
) -> Result<f64, String> {
    let (bytes, files) = (server.resident_bytes(), server.open_files());
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = Client::connect(server.address).map_err(|error| error.to_string())?;
        each(&mut client)?;
        clients.push(client);
    }
    let deadline = Instant::now() + ACCEPT_DEADLINE;
    // The connections of the warm-up and of the readiness check may be closed meanwhile.
    while server.open_files() + 2 < files + CONNECTIONS {
        if Instant::now() > deadline {
            return Err("the server did not accept all connections".to_owned());
        }
        thread::sleep(POLL_EVERY);
    }
    Ok((server.resident_bytes() - bytes) / CONNECTIONS as f64)
}
