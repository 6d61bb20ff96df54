//! Ports that no other test server uses or will choose, even while its own server is down.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Error, Result};
use crate::random::Random;

/// The first port. All are below the ephemeral ports (from 32768 on Linux), so that no outgoing connection
/// takes the port of a server between its kill and its restart.
const FIRST: u64 = 10_000;
/// The last port. So the bus ports of Cluster nodes, [`BUS_OFFSET`] above, are outside the range, and below
/// the ephemeral ports as well.
const LAST: u64 = 19_999;
/// The distance of a Cluster node's bus port from its port; it cannot be configured in Redis 6.2.
const BUS_OFFSET: u16 = 10_000;
/// The number of attempts: more than the tests of one machine could ever use at once.
const ATTEMPTS: usize = 1_000;

/// A TCP port that is reserved for one server while this value lives.
///
/// The server itself listens on the TCP port, so it cannot be reserved by binding it. Instead, every
/// testkit process binds the UDP port of the same number, which no other program uses, and which the system
/// releases if the process is killed.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _held: UdpSocket,
}

impl Port {
    /// Reserves a free port whose bus port is free as well.
    pub(crate) fn any() -> Result<Self> {
        static DRAWN: AtomicU64 = AtomicU64::new(0);
        let draw = DRAWN.fetch_add(1, Ordering::Relaxed);
        let mut random = Random::seeded((u64::from(std::process::id()) << 32) | draw);
        (0..ATTEMPTS)
            .map(|_| random.between(FIRST, LAST) as u16)
            .filter(|number| is_free(number + BUS_OFFSET))
            .find_map(|number| Self::exactly(number).ok())
            .ok_or_else(|| Error::new(format!("none of {ATTEMPTS} ports tried is free")))
    }

    /// Reserves this port, if it is free.
    pub(crate) fn exactly(number: u16) -> Result<Self> {
        match UdpSocket::bind((Ipv4Addr::LOCALHOST, number)) {
            Ok(held) if is_free(number) => Ok(Self { number, _held: held }),
            _ => Err(Error::new(format!("port {number} is taken"))),
        }
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

fn is_free(number: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok()
}
