//! Finds the master of a service, and detects failovers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::redis::{ConnectionInfo, PushInfo, PushKind, Value};

use super::address::{SentinelAddress, with_address};
use super::dial::{Retirement, SharedConnection, can_listen, dial, dial_and_listen};
use super::single_flight::SingleFlight;
use super::within;
use crate::redis::runtime::{PerRuntime, spawn};
use crate::redis::{RedisFailure, RedisFailureKind};

/// The minimum interval at which the sentinels are queried for the current master, while there are calls.
/// The actual interval is up to twice as long.
const RECHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The time that one sentinel has to accept a connection and reply, before the next one is tried.
const SENTINEL_BUDGET: Duration = Duration::from_millis(250);

/// The Pub/Sub channel on which sentinels announce a new master.
const NEW_MASTER: &str = "+switch-master";

/// The sentinels of one service, and the connections to the current master.
///
/// The master is looked up again when one of these happens:
///
/// - The connection breaks.
/// - The server replies that it is a replica.
/// - A sentinel announces `+switch-master`.
/// - The sentinels name another master. They are queried at least once a second while there are calls.
///
/// The last two are for an old master that still accepts writes after a failover. These writes are lost
/// when it becomes a replica. Calls can reach the old master until the announcement arrives; for about a
/// second, if the connection to the announcing sentinel is lost; and longer only if no sentinel can be
/// reached. `min-replicas-to-write` on the servers bounds that too. Calls never wait for these queries.
pub(super) struct Sentinels {
    address: SentinelAddress,
    /// The index of the sentinel that replied last. It is queried first.
    first: AtomicUsize,
    queries: PerRuntime<SentinelQueries>,
    /// The connections that calls are sent on.
    masters: Arc<MasterConnections>,
}

/// The queries of one runtime.
struct SentinelQueries {
    /// The connection to the sentinel that replied last, over which it announces a new master.
    connection: Mutex<Option<SharedConnection>>,
    recheck: SingleFlight,
}

/// The connections to the master, one for each runtime.
#[derive(Default)]
struct MasterConnections(Mutex<Vec<MasterConnection>>);

struct MasterConnection {
    address: String,
    connection: Retirement,
}

impl Sentinels {
    pub(super) fn new(address: SentinelAddress) -> Arc<Self> {
        Arc::new(Self {
            address,
            first: AtomicUsize::new(0),
            queries: PerRuntime::new(),
            masters: Arc::default(),
        })
    }

    /// Queries the sentinels for the address of the master.
    pub(super) async fn server(&self) -> Result<ConnectionInfo, RedisFailure> {
        self.master_at(&self.fetch_master_address().await?)
    }

    /// Queries the sentinels in the background, if that is due.
    pub(super) fn recheck_if_due(self: &Arc<Self>) {
        let queries = self.queries();
        if queries.recheck.is_due() {
            let sentinels = Arc::clone(self);
            spawn(async move {
                queries.recheck.run(sentinels.recheck()).await;
            });
        }
    }

    /// Dials the master that the sentinels name, and verifies its role.
    pub(super) async fn dial_master(&self) -> Result<SharedConnection, RedisFailure> {
        let address = self.fetch_master_address().await?;
        let info = self.master_at(&address)?;
        let connection = dial(&info).await?;
        match within(SENTINEL_BUDGET, connection.send(&::redis::cmd("ROLE"))).await {
            Some(Ok(role)) if is_other_than_master(&role) => Err(unavailable(format!(
                "{address}: the server is not a master; a failover may be in progress"
            ))),
            Some(Ok(_)) => {
                self.masters.add(MasterConnection { address, connection: connection.retirement() });
                Ok(connection)
            }
            Some(Err(error)) => Err(RedisFailure::from_client(RedisFailureKind::Unavailable, error)),
            None => Err(unavailable(format!("{address}: no reply to ROLE within {SENTINEL_BUDGET:?}"))),
        }
    }

    fn master_at(&self, address: &str) -> Result<ConnectionInfo, RedisFailure> {
        with_address(&self.address.master, address).ok_or_else(|| {
            unavailable(format!("the sentinels returned an invalid master address {address:?}"))
        })
    }

    /// Retires the connection if the sentinels name another master.
    async fn recheck(&self) {
        let Ok(address) = self.fetch_master_address().await else { return };
        self.masters.retire_if(|master| master.address != address);
    }

    /// Returns the address of the master, from the first sentinel that knows it.
    async fn fetch_master_address(&self) -> Result<String, RedisFailure> {
        let (count, queries) = (self.address.sentinels.len(), self.queries());
        let first = self.first.load(Ordering::Relaxed);
        let mut last_failure = None;
        for index in (0..count).map(|offset| (first + offset) % count) {
            let sentinel = &self.address.sentinels[index];
            let reply = within(SENTINEL_BUDGET, self.fetch_master_address_from(sentinel, &queries)).await;
            let no_reply = || {
                unavailable(format!("sentinel {} did not reply within {SENTINEL_BUDGET:?}", sentinel.addr()))
            };
            match reply.unwrap_or_else(|| Err(no_reply())) {
                Ok(address) => {
                    self.first.store(index, Ordering::Relaxed);
                    return Ok(address);
                }
                Err(failure) => {
                    *queries.connection() = None;
                    // A refusal is final only if all refuse: a sentinel that cannot be reached may know better.
                    if last_failure.is_none() || failure.kind() != RedisFailureKind::Refused {
                        last_failure = Some(failure);
                    }
                }
            }
        }
        Err(last_failure.unwrap_or_else(|| unavailable("no sentinel is configured".to_owned())))
    }

    async fn fetch_master_address_from(
        &self,
        sentinel: &ConnectionInfo,
        queries: &SentinelQueries,
    ) -> Result<String, RedisFailure> {
        let kept = queries.connection().take().filter(|connection| !connection.is_retired());
        let connection = match kept {
            Some(connection) => connection,
            None => self.listen_to(sentinel).await?,
        };
        let mut command = ::redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.address.service);
        let reply = connection.send(&command).await;
        let address = match reply {
            Ok(Value::ServerError(error)) if error.details().is_some_and(is_unknown_command) => {
                let message =
                    format!("{}: the server is not a sentinel; connect with `redis://`", sentinel.addr());
                return Err(RedisFailure::new(RedisFailureKind::Refused, message));
            }
            Ok(Value::ServerError(error)) => {
                return Err(RedisFailure::from_client(RedisFailureKind::Unavailable, error.into()));
            }
            Ok(value) => master_address(&value),
            Err(error) => return Err(RedisFailure::from_client(RedisFailureKind::Unavailable, error)),
        };
        *queries.connection() = Some(connection);
        address.ok_or_else(|| {
            let message = format!("the sentinels do not know the service {:?}", self.address.service);
            RedisFailure::new(RedisFailureKind::Refused, message)
        })
    }

    /// Dials a sentinel, and subscribes to its announcements of new masters.
    async fn listen_to(&self, sentinel: &ConnectionInfo) -> Result<SharedConnection, RedisFailure> {
        let (masters, service) = (Arc::clone(&self.masters), self.address.service.clone());
        let listener = move |push: &PushInfo| {
            if push.kind == PushKind::Message && announces_master(&push.data, &service) {
                masters.retire_if(|_| true);
            }
        };
        let connection = dial_and_listen(sentinel, Box::new(listener)).await?;
        if can_listen(sentinel) {
            // If the user may not subscribe, the periodic queries remain.
            let _ = connection.subscribe(NEW_MASTER).await;
        }
        Ok(connection)
    }

    fn queries(&self) -> Arc<SentinelQueries> {
        self.queries.current(SentinelQueries::new, |_| false)
    }
}

impl SentinelQueries {
    /// The first look at the sentinels is the dial's.
    fn new() -> Self {
        Self { connection: Mutex::default(), recheck: SingleFlight::after_interval(RECHECK_INTERVAL) }
    }

    fn connection(&self) -> MutexGuard<'_, Option<SharedConnection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MasterConnections {
    fn add(&self, master: MasterConnection) {
        let mut masters = self.lock();
        masters.retain(|other| !other.connection.is_over());
        masters.push(master);
    }

    /// Retires the connections for which `is_outdated`, so that the next call looks the master up.
    fn retire_if(&self, is_outdated: impl Fn(&MasterConnection) -> bool) {
        self.lock()
            .extract_if(.., |master| is_outdated(master))
            .for_each(|master| master.connection.retire());
    }

    fn lock(&self) -> MutexGuard<'_, Vec<MasterConnection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a message is about `service`. It consists of the channel, and a text with the service, the old
/// address and the new one.
fn announces_master(message: &[Value], service: &str) -> bool {
    match message {
        [Value::BulkString(channel), Value::BulkString(text)] => {
            channel == NEW_MASTER.as_bytes()
                && text.split(|byte| *byte == b' ').next() == Some(service.as_bytes())
        }
        _ => false,
    }
}

/// Whether a server knows no sentinels' commands.
fn is_unknown_command(error: &str) -> bool {
    error.contains("unknown command")
}

fn master_address(reply: &Value) -> Option<String> {
    let Value::Array(parts) = reply else { return None };
    let [Value::BulkString(host), Value::BulkString(port)] = parts.as_slice() else { return None };
    Some(format!("{}:{}", std::str::from_utf8(host).ok()?, std::str::from_utf8(port).ok()?))
}

/// Whether the reply to `ROLE` names another role than master. If `ROLE` is not permitted, the sentinels
/// are trusted.
fn is_other_than_master(role: &Value) -> bool {
    match role {
        Value::Array(parts) => parts.first() != Some(&Value::BulkString(b"master".to_vec())),
        _ => false,
    }
}

fn unavailable(message: String) -> RedisFailure {
    RedisFailure::new(RedisFailureKind::Unavailable, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn a_masters_address_is_two_strings() {
        assert_eq!(
            master_address(&Value::Array(vec![text("10.0.0.1"), text("6379")])).unwrap(),
            "10.0.0.1:6379"
        );
        assert_eq!(master_address(&Value::Nil), None);
        assert_eq!(master_address(&Value::Array(vec![text("10.0.0.1"), Value::Int(1)])), None);
        assert_eq!(master_address(&Value::Array(vec![Value::BulkString(vec![255]), text("1")])), None);
    }

    #[test]
    fn an_announcement_is_for_one_service() {
        let message = |channel, about| [text(channel), text(about)];
        let about = "main 10.0.0.1 6379 10.0.0.2 6379";
        assert!(announces_master(&message("+switch-master", about), "main"));
        assert!(!announces_master(&message("+switch-master", about), "mai"));
        assert!(!announces_master(&message("+switch-master", ""), "main"));
        assert!(!announces_master(&message("+sdown", about), "main"));
        assert!(!announces_master(&[Value::Nil], "main"));
    }

    #[test]
    fn replicas_and_sentinels_are_no_masters() {
        assert!(!is_other_than_master(&Value::Array(vec![text("master"), Value::Int(0)])));
        assert!(is_other_than_master(&Value::Array(vec![text("slave"), text("10.0.0.1")])));
        assert!(is_other_than_master(&Value::Array(vec![])));
        assert!(!is_other_than_master(&Value::Okay));
    }
}
