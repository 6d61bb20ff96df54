//! The faults: how each begins and ends.

use std::time::Duration;

use trypema_testkit::redis::{FaultProxy, Result, Server};

type Step = fn(&Stage) -> Result<()>;

/// A fault.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    way: Way,
    pub(crate) strike: Step,
    pub(crate) heal: Step,
}

/// The path from callers to the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Direct,
    Proxied,
}

/// A server, and the proxy in front of it.
pub(crate) struct Stage {
    server: Server,
    proxy: FaultProxy,
    pub(crate) url: String,
}

impl Stage {
    pub(crate) fn set(row: &Row) -> Result<Self> {
        let server = Server::start()?;
        let proxy = FaultProxy::start(server.addr())?;
        let url = match row.way {
            Way::Direct => server.url(),
            Way::Proxied => proxy.url(),
        };
        Ok(Self { server, proxy, url })
    }

    fn command(&self, words: &[&str]) -> Result<()> {
        self.server.control()?.command(words).map(|_| ())
    }

    fn harm(&self, harm: fn(&FaultProxy)) -> Result<()> {
        harm(&self.proxy);
        Ok(())
    }
}

/// A delay longer than any deadline.
const SLOW: Duration = Duration::from_millis(200);

/// The beginning of a fault that has no duration. Such a fault is entirely in `heal`, where the recovery
/// time starts.
const NOTHING: Step = |_| Ok(());

pub(crate) const ROWS: [Row; 12] = [
    Row {
        name: "kill -9, restart",
        way: Way::Direct,
        strike: |s| s.server.kill_9(),
        heal: |s| s.server.restart(),
    },
    Row { name: "SIGSTOP", way: Way::Direct, strike: |s| s.server.stop(), heal: |s| s.server.cont() },
    Row {
        name: "reply dropped",
        way: Way::Proxied,
        strike: |s| s.harm(FaultProxy::drop_replies),
        heal: |s| s.harm(FaultProxy::heal).and_then(|()| s.harm(FaultProxy::cut)),
    },
    Row { name: "cut", way: Way::Proxied, strike: NOTHING, heal: |s| s.harm(FaultProxy::cut) },
    Row {
        name: "cut instead of the reply",
        way: Way::Proxied,
        strike: |s| s.harm(FaultProxy::cut_on_reply),
        heal: |s| s.harm(FaultProxy::heal),
    },
    Row {
        name: "half-open",
        way: Way::Proxied,
        strike: |s| s.harm(FaultProxy::freeze),
        heal: |s| s.harm(FaultProxy::heal),
    },
    Row {
        name: "connections refused",
        way: Way::Proxied,
        strike: |s| s.harm(FaultProxy::refuse),
        heal: |s| s.harm(FaultProxy::heal),
    },
    Row {
        name: "slow server",
        way: Way::Proxied,
        strike: |s| s.harm(|proxy| proxy.delay(SLOW)),
        heal: |s| s.harm(FaultProxy::heal),
    },
    Row {
        name: "SCRIPT FLUSH",
        way: Way::Direct,
        strike: NOTHING,
        heal: |s| s.command(&["SCRIPT", "FLUSH"]),
    },
    Row { name: "FLUSHALL", way: Way::Direct, strike: NOTHING, heal: |s| s.command(&["FLUSHALL"]) },
    Row {
        name: "OOM",
        way: Way::Direct,
        strike: |s| s.command(&["CONFIG", "SET", "maxmemory", "1"]),
        heal: |s| s.command(&["CONFIG", "SET", "maxmemory", "0"]),
    },
    Row {
        name: "READONLY",
        way: Way::Direct,
        strike: |s| s.command(&["REPLICAOF", "127.0.0.1", "1"]),
        heal: |s| s.command(&["REPLICAOF", "NO", "ONE"]),
    },
];
