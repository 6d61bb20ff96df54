//! The effect of hostile clients on a good client: its p99 next to them, alternating with calm rounds.
//!
//! The good client sends 1,000 requests per second over one connection, which leaves the two cores mostly
//! idle. The measurement therefore shows interference within the server, not the lack of a processor. Hostile
//! clients are paced for the same reason.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::contender::Contender;
use super::memory::allow_open_files;
use super::place::Place;
use super::process::Server;
use super::workload::{HOT_USER, WORKLOADS};

const ROUNDS: usize = 5;
const REQUESTS: usize = 2_000;
const PACE: Duration = Duration::from_millis(1);
/// The server's default limit of connections. The good client is one more.
const SILENT: usize = 10_000;
const TRICKLING: usize = 1_000;
/// The number of sockets that send a byte each millisecond. Each of the trickling sockets sends one every 100
/// ms; all at once would be a burst.
const AT_ONCE: usize = 10;

/// The behaviour of the hostile clients.
#[derive(Clone, Copy)]
pub enum Attack {
    Silent,
    Trickling,
    Malformed,
}

/// The effect on the good client.
pub struct Harm {
    pub attack: Attack,
    /// Medians over the rounds.
    pub calm_p99_us: f64,
    pub p99_us: f64,
    pub ratio: f64,
}

impl Attack {
    const ALL: [Self; 3] = [Self::Silent, Self::Trickling, Self::Malformed];

    pub fn name(self) -> &'static str {
        match self {
            Self::Silent => "10,000 silent sockets",
            Self::Trickling => "1,000 sockets that send a byte of a head every 100 ms",
            Self::Malformed => "1,000 malformed requests a second, each on a connection of its own",
        }
    }

    fn begin(self, address: SocketAddr) -> Result<Attackers, String> {
        let connect = |_| TcpStream::connect(address).map_err(|error| format!("connecting: {error}"));
        let count = match self {
            Self::Silent => SILENT,
            Self::Trickling => TRICKLING,
            Self::Malformed => 0,
        };
        let sockets: Vec<TcpStream> = (0..count).map(connect).collect::<Result<_, _>>()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let mut turns = (0..TRICKLING).cycle();
        let thread = thread::spawn(move || match self {
            Self::Silent | Self::Trickling => while_not(&over, PACE, || {
                let sending = turns.by_ref().take(AT_ONCE).filter(|_| matches!(self, Self::Trickling));
                for mut socket in sending.filter_map(|turn| sockets.get(turn)) {
                    // A write fails if the server has closed the socket. That is expected.
                    let _ = socket.write(b"x");
                }
            }),
            Self::Malformed => while_not(&over, PACE, || {
                let Ok(mut socket) = TcpStream::connect(address) else { return };
                let _ = socket.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nbroken header\r\n\r\n");
                let _ = socket.read(&mut [0; 256]);
            }),
        });
        Ok(Attackers { is_over, thread: Some(thread) })
    }
}

fn while_not(is_over: &AtomicBool, pause: Duration, mut act: impl FnMut()) {
    while !is_over.load(Ordering::Relaxed) {
        act();
        thread::sleep(pause);
    }
}

/// A running attack, which ends when it is dropped.
struct Attackers {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Attackers {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub fn measured(place: &Place) -> Result<Vec<Harm>, String> {
    allow_open_files();
    Attack::ALL.into_iter().map(|attack| harm_of(attack, place)).collect()
}

fn harm_of(attack: Attack, place: &Place) -> Result<Harm, String> {
    let server = Contender::Ours.start(&WORKLOADS[0], place)?;
    let (mut calm, mut under, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let before = p99_us(&server)?;
        let attackers = attack.begin(server.address)?;
        let during = p99_us(&server)?;
        drop(attackers);
        calm.push(before);
        under.push(during);
        ratios.push(during / before);
    }
    Ok(Harm { attack, calm_p99_us: median(calm), p99_us: median(under), ratio: median(ratios) })
}

/// Returns the p99 of a client that sends requests at a steady pace.
fn p99_us(server: &Server) -> Result<f64, String> {
    let mut client = server.client();
    let mut times = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        let started = Instant::now();
        Contender::Ours.ask(&WORKLOADS[0], &mut client, HOT_USER)?;
        times.push(started.elapsed().as_secs_f64() * 1e6);
        thread::sleep(PACE);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[REQUESTS * 99 / 100])
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
