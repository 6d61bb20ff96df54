//! A primary that sentinels monitor.

use super::wait::poll;
use super::{Binary, Error, Info, Result, Server};

/// The name of the primary in the sentinels' configuration.
const NAME: &str = "mymaster";
const REPLICAS: usize = 2;
const SENTINELS: usize = 3;
const QUORUM: &str = "2";
/// The time after which a server that does not answer counts as down: short, but longer than a loaded
/// machine pauses.
const DOWN_AFTER_MS: &str = "500";
/// The timeout of a failover.
const FAILOVER_TIMEOUT_MS: &str = "5000";

/// A primary, two replicas and three sentinels with a quorum of two. A server that does not answer for half
/// a second counts as down.
#[derive(Debug)]
pub struct Sentinel {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
}

impl Sentinel {
    /// Starts all servers with the `redis-server` on the `PATH`, and waits until they know each other,
    /// which takes some seconds.
    pub fn start() -> Result<Self> {
        Self::start_on(Binary::redis()?)
    }

    /// Starts all servers with another program.
    pub fn start_on(binary: Binary) -> Result<Self> {
        let primary = Server::builder().binary(binary.clone()).start()?;
        let port = primary.port().to_string();
        let mut servers = vec![primary];
        for _ in 0..REPLICAS {
            let replica = Server::builder().binary(binary.clone());
            servers.push(replica.set("replicaof", &format!("127.0.0.1 {port}")).start()?);
        }
        let mut started = Self { servers, sentinels: Vec::new() };
        started.wait_until_replicating_from(started.servers[0].port())?;
        for _ in 0..SENTINELS {
            started.sentinels.push(start_sentinel(&binary, &port)?);
        }
        poll("the sentinels to know all", || started.sentinels.iter().try_for_each(knows_all))?;
        Ok(started)
    }

    /// Returns the URL: `redis+sentinel://host:port,host:port,host:port/mymaster`.
    pub fn url(&self) -> String {
        let addresses: Vec<String> = self.sentinels.iter().map(|node| node.addr().to_string()).collect();
        format!("redis+sentinel://{}/{NAME}", addresses.join(","))
    }

    /// Returns the server that the sentinels name as primary.
    pub fn primary(&self) -> Result<&Server> {
        let sentinel = self.live_sentinels().next().ok_or_else(|| Error::new("no sentinel runs"))?;
        self.primary_by(sentinel)
    }

    /// Returns the three data servers, whatever their current role.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Returns the three sentinels.
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// Promotes a replica with `SENTINEL FAILOVER`. All sentinels name it when this returns.
    ///
    /// The old primary still acts as one then. The sentinels reconfigure it about ten seconds later, see
    /// [`wait_until_replicating`](Sentinel::wait_until_replicating).
    pub fn failover(&self) -> Result<()> {
        let old = self.primary()?.port();
        let sentinel = self.live_sentinels().next().ok_or_else(|| Error::new("no sentinel runs"))?;
        // The sentinel refuses while it has not heard enough from the replicas since the last failover.
        poll("the sentinel to begin a failover", || {
            sentinel.control()?.command(&["SENTINEL", "FAILOVER", NAME]).map(|_| ())
        })?;
        poll("a replica to take over", || match self.settled_primary()? {
            primary if primary.port() != old => Ok(()),
            _ => Err(Error::new("the old primary is named")),
        })
    }

    /// Kills the primary, and returns it immediately, before a replica has taken over.
    pub fn kill_primary(&self) -> Result<&Server> {
        let primary = self.primary()?;
        primary.kill_9()?;
        Ok(primary)
    }

    /// Waits until all running sentinels name the same running primary, and that server is a primary.
    pub fn wait_until_settled(&self) -> Result<()> {
        poll("the sentinels to settle", || self.settled_primary().map(|_| ()))
    }

    /// Waits until, in addition, every other running server follows the primary, which takes up to about
    /// ten seconds.
    pub fn wait_until_replicating(&self) -> Result<()> {
        self.wait_until_settled()?;
        self.wait_until_replicating_from(self.primary()?.port())
    }

    fn wait_until_replicating_from(&self, primary: u16) -> Result<()> {
        poll("the replicas to follow their primary", || {
            let others = self.servers.iter().filter(|server| server.port() != primary && server.is_running());
            others.into_iter().try_for_each(|server| follows(server, primary))
        })
    }

    fn settled_primary(&self) -> Result<&Server> {
        let primary = self.primary()?;
        for sentinel in self.live_sentinels() {
            if self.primary_by(sentinel)?.port() != primary.port() {
                return Err(Error::new("the sentinels do not agree"));
            }
            let flags = known(sentinel)?.text("flags").to_owned();
            if flags != "master" {
                return Err(Error::new(format!("a sentinel sees the primary as {flags}")));
            }
        }
        match primary.info("replication")?.text("role") {
            "master" => Ok(primary),
            role => Err(Error::new(format!("the primary takes itself for a {role}"))),
        }
    }

    fn primary_by(&self, sentinel: &Server) -> Result<&Server> {
        let reply = sentinel.control()?.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME])?;
        let port = reply.items().get(1).and_then(super::Reply::integer);
        let named = self.servers.iter().find(|server| Some(i64::from(server.port())) == port);
        named.ok_or_else(|| Error::new(format!("a sentinel names {reply:?} as primary")))
    }

    fn live_sentinels(&self) -> impl Iterator<Item = &Server> {
        self.sentinels.iter().filter(|sentinel| sentinel.is_running())
    }
}

fn start_sentinel(binary: &Binary, primary: &str) -> Result<Server> {
    Server::builder()
        .sentinel()
        .binary(binary.clone())
        .set("sentinel monitor", &format!("{NAME} 127.0.0.1 {primary} {QUORUM}"))
        .set("sentinel down-after-milliseconds", &format!("{NAME} {DOWN_AFTER_MS}"))
        .set("sentinel failover-timeout", &format!("{NAME} {FAILOVER_TIMEOUT_MS}"))
        .start()
}

/// Returns the fields that a sentinel reports about the primary.
fn known(sentinel: &Server) -> Result<Info> {
    let reply = sentinel.control()?.command(&["SENTINEL", "MASTER", NAME])?;
    let pairs = reply.items().chunks(2);
    let lines: Vec<String> =
        pairs.map(|pair| pair.iter().map(|word| word.text()).collect::<Vec<_>>().join(":")).collect();
    Ok(Info::parse(&lines.join("\n")))
}

fn knows_all(sentinel: &Server) -> Result<()> {
    let known = known(sentinel)?;
    let counts = [known.number("num-slaves"), known.number("num-other-sentinels")];
    if counts == [Some(REPLICAS as u64), Some(SENTINELS as u64 - 1)] && known.text("flags") == "master" {
        Ok(())
    } else {
        Err(Error::new(format!("{} knows {known:?}", sentinel.port())))
    }
}

fn follows(server: &Server, primary: u16) -> Result<()> {
    let replication = server.info("replication")?;
    let is_up = replication.text("master_link_status") == "up";
    if is_up && replication.number("master_port") == Some(primary.into()) {
        Ok(())
    } else {
        Err(Error::new(format!("{} has {replication:?}", server.port())))
    }
}
