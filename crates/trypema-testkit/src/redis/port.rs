//! Ports that no other server of ours has or will take, even while its own is down.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Error, Result};
use crate::random::Random;

/// Below the ports that systems lend to outgoing connections (32768 and up on Linux), so that none of those takes
/// the port of a server between its kill and its restart.
const FIRST: u64 = 10_000;
/// The ports of the Cluster buses, [`BUS_OFFSET`] above, are then nobody's port and below those lent out too.
const LAST: u64 = 19_999;
/// A Cluster node listens for its peers at its port plus this; Redis 6.2 cannot be told otherwise.
const BUS_OFFSET: u16 = 10_000;
/// More than could ever be taken at once by the tests of one machine.
const ATTEMPTS: usize = 1_000;

/// A TCP port held for one server for as long as this lives.
///
/// Redis itself listens on the TCP port, so it cannot be held by binding it. Every testkit process holds the UDP
/// port of the same number instead, which nobody else wants and which a killed process gives back.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _held: UdpSocket,
}

impl Port {
    /// Some port that is free now, and whose bus port is.
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

    /// This very port, if it is free.
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
