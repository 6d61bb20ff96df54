//! The floors: the cheapest possible calls.

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, IntoConnectionInfo as _, cmd};

use super::contender::{Contender, EXACTLY, Load};

/// The number of commands that may wait to be written. Our own connection has the same bound.
const UNWRITTEN_COMMANDS: usize = 1_024;

/// Returns a client whose connections set `TCP_NODELAY`, as ours do.
pub fn client(url: &str) -> Client {
    let info = url.into_connection_info().expect("a valid address");
    Client::open(info.set_tcp_settings(TcpSettings::default().set_nodelay(true))).expect("a valid address")
}

/// Connects with the settings of our own connection.
async fn connect(url: &str) -> MultiplexedConnection {
    let config =
        AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(UNWRITTEN_COMMANDS);
    client(url).get_multiplexed_async_connection_with_config(&config).await.expect("a connection")
}

async fn query<T: FromRedisValue>(connection: &MultiplexedConnection, command: &Cmd) -> Result<T, String> {
    command.query_async(&mut connection.clone()).await.map_err(|error| error.to_string())
}

async fn load(connection: &MultiplexedConnection, script: &str) -> String {
    query(connection, cmd("SCRIPT").arg("LOAD").arg(script)).await.expect("a script that compiles")
}

/// A single command, or a script that does nothing.
pub struct Floor {
    connection: MultiplexedConnection,
    /// The digest of the script, or `None` for a command.
    digest: Option<String>,
}

impl Floor {
    pub async fn incr(url: &str) -> Self {
        Self { connection: connect(url).await, digest: None }
    }

    pub async fn return_1(url: &str) -> Self {
        let connection = connect(url).await;
        let digest = Some(load(&connection, "return 1").await);
        Self { connection, digest }
    }
}

impl Contender for Floor {
    type Key = String;

    fn key(name: &str) -> String {
        format!("incr:{name}")
    }

    async fn check(&self, key: &String) -> Result<bool, String> {
        let count: i64 = match &self.digest {
            None => query(&self.connection, cmd("INCR").arg(key)).await?,
            Some(digest) => query(&self.connection, cmd("EVALSHA").arg(digest).arg(1).arg(key)).await?,
        };
        Ok(count > 0)
    }
}

/// GCRA in as few lines as possible: one limit, no wait time, no balance, only one operation.
const GCRA: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local arrival = math.max(now, tonumber(redis.call('GET', KEYS[1]) or 0)) + ARGV[1]
if arrival - now > tonumber(ARGV[2]) then
  return 0
end
redis.call('SET', KEYS[1], arrival, 'PX', math.ceil((arrival - now) / 1000))
return 1
";

/// [`GCRA`] with its parameters in microseconds.
pub struct Gcra {
    connection: MultiplexedConnection,
    digest: String,
    step_us: u64,
    burst_us: u64,
}

impl Gcra {
    pub async fn new(url: &str, load_of_calls: Load) -> Self {
        let (step_us, calls) = match load_of_calls {
            Load::Plenty | Load::Young | Load::Expiring => (1_000, u64::from(u32::MAX)),
            Load::Scarce => (36_000_000, 100),
            Load::Counted => (360_000, EXACTLY),
        };
        let connection = connect(url).await;
        let digest = load(&connection, GCRA).await;
        Self { connection, digest, step_us, burst_us: step_us * calls }
    }
}

impl Contender for Gcra {
    type Key = String;

    fn key(name: &str) -> String {
        format!("gcra:{name}")
    }

    async fn check(&self, key: &String) -> Result<bool, String> {
        let mut command = Cmd::with_capacity(6, 128);
        command.arg("EVALSHA").arg(&self.digest).arg(1).arg(key).arg(self.step_us).arg(self.burst_us);
        query::<i64>(&self.connection, &command).await.map(|answer| answer == 1)
    }
}
