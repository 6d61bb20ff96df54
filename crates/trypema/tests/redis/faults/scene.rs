//! A server, a limiter on it, and the units that the server has counted.

use std::sync::Arc;
use std::time::Duration;

use trypema::redis::client::Client;
use trypema::redis::client::aio::ConnectionManager;
use trypema::redis::{RedisConnection, RedisKey};
use trypema::{AbsoluteLimit, RateGroupSizeMs, RateLimit, RateLimiter, WindowSizeSeconds};
use trypema_testkit::blocking::{connect, key, wait_for};
use trypema_testkit::redis::{Control, FaultProxy, Server};

use super::load::{Counts, Load, Target};

/// The deadline of each Redis call. Longer than the default, so that a busy machine does not count as a
/// fault.
pub(crate) const DEADLINE: Duration = Duration::from_millis(100);

/// The deadline for a server that always replies: no call may fail only because the machine stalls.
pub(crate) const AMPLE_DEADLINE: Duration = Duration::from_secs(20);

/// The time by which a call may exceed its deadline here, on a machine that does other work. The soak measures
/// the precise number.
const ALLOWANCE: Duration = Duration::from_secs(5);

/// The side that opens the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// `RedisConnection::connect`.
    Ours,
    /// A redis-rs connection manager with its own settings.
    Manager,
}

impl Link {
    pub(crate) fn open(self, url: &str) -> RedisConnection {
        match self {
            Self::Ours => connect(url),
            Self::Manager => {
                let client = Client::open(url).unwrap();
                RedisConnection::from(wait_for(ConnectionManager::new(client)).unwrap())
            }
        }
    }
}

/// A server with a limiter on it.
pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) target: Target,
}

impl Scene {
    /// A limiter on a server that will stop replying.
    pub(crate) fn on(server: Server, link: Link) -> Self {
        let connection = link.open(&server.url());
        Self { server, target: target(connection, DEADLINE) }
    }

    /// A limiter behind a proxy that will stop replying.
    pub(crate) fn behind_proxy(link: Link) -> (Self, FaultProxy) {
        let server = Server::start().unwrap();
        let proxy = FaultProxy::start(server.addr()).unwrap();
        let connection = link.open(&proxy.url());
        (Self { server, target: target(connection, DEADLINE) }, proxy)
    }

    /// A limiter on a server that always replies, possibly with errors.
    pub(crate) fn answering(server: Server, link: Link) -> Self {
        let url = server.url();
        Self::answering_at(&url, server, link)
    }

    /// The same, for a server that the limiter reaches by another URL than the one with all permissions.
    pub(crate) fn answering_at(url: &str, server: Server, link: Link) -> Self {
        Self { server, target: target(link.open(url), AMPLE_DEADLINE) }
    }

    pub(crate) fn load(&self) -> Load {
        Load::start(&self.target)
    }

    pub(crate) fn command(&self, words: &[&str]) {
        self.control().command(words).unwrap();
    }

    pub(crate) fn control(&self) -> Control {
        self.server.control().unwrap()
    }

    /// The units that the server has counted, read through a separate connection.
    pub(crate) fn counted(&self) -> u64 {
        let limiter = RateLimiter::builder().redis(connect(&self.server.url()));
        let limiter = limiter.redis_deadline(Duration::from_secs(20)).build().unwrap();
        let Target { key, limit, .. } = &self.target;
        let usage = wait_for(limiter.redis().absolute().usage(key, limit)).unwrap();
        usage.limit() - usage.remaining()
    }

    /// Asserts that no call was sent twice and no admitted call was lost.
    pub(crate) fn assert_counted_once(&self, counts: &Counts) {
        let counted = self.counted();
        let possible = counts.admitted..=counts.admitted + counts.unknown + counts.bad_replies;
        assert!(possible.contains(&counted), "{counted} counted of {counts:?}");
    }
}

/// The target for callers on `connection`: a limit that is never reached.
pub(crate) fn target(connection: RedisConnection, deadline: Duration) -> Target {
    let rl = RateLimiter::builder().redis(connection).redis_deadline(deadline).build().unwrap();
    Target { rl: Arc::new(rl), key: ann(), limit: ample(), patience: deadline + ALLOWANCE }
}

pub(crate) fn ann() -> RedisKey {
    key("ann")
}

/// A limit that neither expires nor denies during a test.
fn ample() -> AbsoluteLimit {
    let (window, group) =
        (WindowSizeSeconds::try_from(3_600).unwrap(), RateGroupSizeMs::try_from(10).unwrap());
    AbsoluteLimit::new(RateLimit::try_from(10_000.0).unwrap(), window, group)
}
