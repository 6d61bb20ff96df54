//! One direction of one connection.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use trypema::clock::{Clock, SystemClock, Timestamp};

use super::connection::Connections;
use super::fault::Fault;
use super::rewrite::Rewriter;

/// The interval at which a pump that holds bytes back checks again.
const GLANCE: Duration = Duration::from_millis(5);
/// The number of bytes per read.
const CHUNK_BYTES: usize = 16 * 1024;
/// The maximum number of chunks that a delay holds back. Beyond it, the sender has to wait.
const HELD_CHUNKS: usize = 64;

/// The direction of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Requests,
    Replies,
}

/// Reads from one end and writes to the other, as the fault permits.
pub(super) struct Pump {
    direction: Direction,
    from: TcpStream,
    to: TcpStream,
    /// Chunks that a fault holds back.
    held: VecDeque<Held>,
    rewriter: Rewriter,
    /// The current read timeout.
    patience: Option<Duration>,
}

/// Bytes that are held back.
struct Held {
    /// The time at which they pass.
    due: Timestamp,
    /// The number of releases when they were read. They pass at the next one, if that is earlier.
    releases: u64,
    chunk: Vec<u8>,
}

impl Pump {
    pub(super) fn new(direction: Direction, from: TcpStream, to: TcpStream) -> io::Result<Self> {
        from.set_read_timeout(None)?;
        to.set_nodelay(true)?;
        Ok(Self { direction, from, to, held: VecDeque::new(), rewriter: Rewriter::default(), patience: None })
    }

    /// Forwards bytes until either end is closed.
    pub(super) fn run(mut self, connections: &Connections) {
        let mut chunk = vec![0; CHUNK_BYTES];
        // An error means that the fault or a peer has ended the connection.
        while let Ok(true) = self.step(&mut chunk, connections) {}
    }

    /// Forwards one chunk. Returns `false` at the end of the connection.
    fn step(&mut self, chunk: &mut [u8], connections: &Connections) -> io::Result<bool> {
        if connections.fault() == Fault::Freeze || self.held.len() >= HELD_CHUNKS {
            thread::sleep(GLANCE);
        } else {
            self.be_ready_to_read()?;
            match self.from.read(chunk) {
                Ok(0) => return Ok(false),
                Ok(length) => {
                    let chunk = self.rewritten(&chunk[..length], connections);
                    if !self.pass(&chunk, connections)? {
                        return Ok(false);
                    }
                }
                Err(error) if is_silence(&error) => {}
                Err(error) => return Err(error),
            }
        }
        self.release_due(connections)?;
        Ok(true)
    }

    /// Sets the read timeout. Without held chunks, a read may block: there is nothing else to do.
    fn be_ready_to_read(&mut self) -> io::Result<()> {
        let patience = (!self.held.is_empty()).then_some(GLANCE);
        if patience != self.patience {
            self.from.set_read_timeout(patience)?;
            self.patience = patience;
        }
        Ok(())
    }

    /// Replaces strings in a chunk of requests.
    fn rewritten<'c>(&mut self, chunk: &'c [u8], connections: &Connections) -> Cow<'c, [u8]> {
        if self.direction == Direction::Replies || connections.rewrites.is_empty() {
            return chunk.into();
        }
        let rewritten = self.rewriter.pass(&connections.rewrites, chunk);
        connections.rewritten.fetch_add(rewritten.count, Ordering::Relaxed);
        rewritten.bytes.into()
    }

    /// Applies the fault to a chunk. Returns `false` if that ends the connection.
    fn pass(&mut self, chunk: &[u8], connections: &Connections) -> io::Result<bool> {
        let (now, releases) = (SystemClock.now(), connections.releases.load(Ordering::Acquire));
        let held = |due| Held { due, releases, chunk: chunk.to_vec() };
        match (connections.fault(), self.direction) {
            (Fault::DropReplies, Direction::Replies) => {}
            (Fault::CutOnReply, Direction::Replies) => return Ok(false),
            (Fault::Delay(by), Direction::Replies) => self.held.push_back(held(now + by)),
            // The chunk was read just before the freeze, so it goes first afterwards.
            (Fault::Freeze, _) => self.held.push_back(held(now)),
            // No chunk may overtake those that are held back.
            _ if !self.held.is_empty() => self.held.push_back(held(now)),
            _ => self.write(chunk, connections)?,
        }
        Ok(true)
    }

    fn release_due(&mut self, connections: &Connections) -> io::Result<()> {
        let releases = connections.releases.load(Ordering::Acquire);
        while let Some(held) = self.held.front() {
            let is_due = held.releases < releases || held.due <= SystemClock.now();
            if connections.fault() == Fault::Freeze || !is_due {
                break;
            }
            if let Some(Held { chunk, .. }) = self.held.pop_front() {
                self.write(&chunk, connections)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, chunk: &[u8], connections: &Connections) -> io::Result<()> {
        let counter = match self.direction {
            Direction::Requests => &connections.bytes_up,
            Direction::Replies => &connections.bytes_down,
        };
        // Count before writing, so that a receiver of a byte always finds it counted.
        counter.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        self.to.write_all(chunk)
    }
}

/// Whether the error only means that nothing arrived within the read timeout.
fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
