//! Servers in child processes that are killed when this process ends, however it ends.

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};

use super::client::Client;

/// Longer than any of the servers takes to start.
const START_DEADLINE: Duration = Duration::from_secs(10);
const POLL_EVERY: Duration = Duration::from_millis(20);
/// The unit of processor time in `/proc`, independent of the kernel's own tick rate.
const TICKS_PER_SECOND: f64 = 100.0;

/// A server that can be started.
pub struct Program {
    pub command: Command,
    /// Returns the arguments that make it listen on an address.
    pub listening: fn(SocketAddr) -> Vec<String>,
}

/// A running server, killed when dropped.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
}

impl Server {
    /// Starts a program on a free port, and waits until `is_ready` returns true.
    pub fn start(program: Program, is_ready: impl Fn(&mut Client) -> bool) -> Result<Self, String> {
        let address = free_address();
        let mut command = tethered(&program.command);
        command.args((program.listening)(address));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.map_err(|error| format!("{command:?} could not be started: {error}"))?;
        let mut server = Self { child, address };
        let deadline = Instant::now() + START_DEADLINE;
        loop {
            if Client::connect(address).is_ok_and(|mut client| is_ready(&mut client)) {
                return Ok(server);
            }
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(format!("{command:?} ended with {status}"));
            }
            if Instant::now() > deadline {
                return Err(format!("{command:?} did not answer within {START_DEADLINE:?}"));
            }
            thread::sleep(POLL_EVERY);
        }
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address).expect("a connection")
    }

    /// Connects to the admin listener of one of our own servers.
    pub fn admin_client(&self) -> Client {
        Client::connect(admin_address(self.address)).expect("a connection")
    }

    /// Returns the processor time spent so far, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        let stat = self.proc("stat");
        // The process name may contain spaces, so the fields are counted from the bracket that ends it.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let ticks = fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse().unwrap_or(0.0));
        ticks.sum::<f64>() / TICKS_PER_SECOND
    }

    /// Returns the resident bytes, exactly (`statm` may lag by some pages per thread).
    pub fn resident_bytes(&self) -> f64 {
        self.bytes("smaps_rollup", "Rss:")
    }

    /// Returns the peak of the resident bytes.
    pub fn peak_bytes(&self) -> f64 {
        self.bytes("status", "VmHWM:")
    }

    pub fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).map_or(0, Iterator::count)
    }

    fn bytes(&self, file: &str, name: &str) -> f64 {
        let text = self.proc(file);
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
        kib.expect("a size in KiB") * 1_024.0
    }

    fn proc(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).expect("a running server")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // This fails only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns an address with a port that is free now. If another process takes the port first, the server fails
/// to start.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("its address")
}

/// Returns the address of a server's admin listener: the same port on another loopback address.
pub fn admin_address(server: SocketAddr) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), server.port()))
}

/// Wraps a command so that its process is killed when this process ends.
fn tethered(command: &Command) -> Command {
    let mut tethered = Command::new(std::env::current_exe().expect("this program"));
    tethered.arg("tethered").arg(command.get_program()).args(command.get_args());
    tethered
}

/// Replaces this process by `program`, which the kernel kills when the parent process ends.
pub fn become_tethered(program: impl AsRef<OsStr>, arguments: &[&str]) -> ExitCode {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        eprintln!("a server would outlive this run: {error}");
        return ExitCode::FAILURE;
    }
    let error = Command::new(program).args(arguments).exec();
    eprintln!("could not be started: {error}");
    ExitCode::FAILURE
}
