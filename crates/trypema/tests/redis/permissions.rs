//! A Redis user with exactly the permissions of `RedisCommand::ALL`, and users that lack one of them.
#![cfg(all(feature = "redis-tokio", feature = "rules"))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

mod every_use;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use trypema::observer::{Event, Observer, StoreCall};
use trypema::redis::{CommandTarget, CommandUse, MissingPermission, RedisCommand, RedisConnection};
use trypema::{Check, FixedWindowLimit, Limit, RateLimiter, TrypemaError};
use trypema_testkit::blocking::{connect, wait_for};
use trypema_testkit::redis::{Binary, Cluster, Monitored, Sentinel, Server};

use self::every_use::{counters, leases};

/// Redis says `access` in some of its errors, which have the user's name, too.
const NAME: &str = "access-limiter";

/// Long, because the machine may be busy with other tests.
const DEADLINE: Duration = Duration::from_secs(20);

/// A user of the provider with leases, or of the one without.
#[derive(Clone, Copy)]
struct User {
    has_leases: bool,
    target: CommandTarget,
}

const REDIS: User = User { has_leases: false, target: CommandTarget::Any };
const HYBRID: User = User { has_leases: true, target: CommandTarget::Any };

impl User {
    fn commands(self) -> impl Iterator<Item = &'static RedisCommand> {
        let needed = RedisCommand::ALL.iter().filter(move |command| {
            (self.has_leases || command.used_for != CommandUse::Leases)
                && [CommandTarget::Any, self.target].contains(&command.sent_to)
        });
        needed.filter(|command| command.sent_to != CommandTarget::Sentinel)
    }

    /// Makes the user on a server, without one command.
    fn make_without(self, server: &Server, left_out: Option<&RedisCommand>) {
        let mut words: Vec<String> =
            ["ACL", "SETUSER", NAME, "reset", "on", ">secret", "~trypema:*", "resetchannels"]
                .map(str::to_owned)
                .into();
        words
            .extend(self.commands().filter(|command| Some(*command) != left_out).map(RedisCommand::acl_rule));
        server.control().unwrap().command(&words).unwrap();
    }
}

fn limiter(connection: RedisConnection) -> RateLimiter {
    RateLimiter::builder()
        .redis(connection)
        .redis_deadline(DEADLINE)
        .sync_interval(Duration::from_millis(50))
        .build()
        .unwrap()
}

fn connection_of(server: &Server) -> RedisConnection {
    connect(&server.url_as(NAME, "secret"))
}

fn missing(rl: &RateLimiter, user: User) -> Vec<MissingPermission> {
    match user.has_leases {
        true => wait_for(rl.hybrid().missing_permissions()).unwrap(),
        false => wait_for(rl.redis().missing_permissions()).unwrap(),
    }
}

fn assert_nothing_was_refused(server: &Server) {
    let log = server.control().unwrap().command(&["ACL", "LOG"]).unwrap();
    assert!(log.items().is_empty(), "{log:?}");
}

/// Returns the commands that scripts sent, in lower case.
fn of_scripts(seen: &[Monitored]) -> BTreeSet<String> {
    let from_scripts = seen.iter().filter(|seen| seen.is_from_script);
    from_scripts.map(|seen| String::from_utf8_lossy(&seen.words[0]).to_lowercase()).collect()
}

fn start(binary: &Binary) -> Server {
    Server::builder().binary(binary.clone()).start().unwrap()
}

#[test]
fn the_redis_provider_needs_exactly_the_commands_of_counters() {
    for binary in Binary::every().unwrap() {
        let server = start(&binary);
        REDIS.make_without(&server, None);
        let monitor = server.monitor().unwrap();
        let connection = connection_of(&server);
        assert_eq!(missing(&limiter(connection.clone()), REDIS), [], "{}", binary.name());
        counters(&connection);
        assert_nothing_was_refused(&server);
        let listed: BTreeSet<String> = REDIS.commands().map(|command| command.name.to_owned()).collect();
        let sent = of_scripts(&monitor.finish().unwrap());
        let not_of_scripts = ["eval", "evalsha", "info"].map(str::to_owned);
        assert_eq!(sent, listed.into_iter().filter(|name| !not_of_scripts.contains(name)).collect());
    }
}

#[test]
fn the_hybrid_provider_needs_those_of_leases_too() {
    for binary in Binary::every().unwrap() {
        let server = start(&binary);
        HYBRID.make_without(&server, None);
        let connection = connection_of(&server);
        assert_eq!(missing(&limiter(connection.clone()), HYBRID), [], "{}", binary.name());
        let monitor = server.monitor().unwrap();
        leases(&connection);
        assert_nothing_was_refused(&server);
        let sent = of_scripts(&monitor.finish().unwrap());
        let of_leases = RedisCommand::ALL.iter().filter(|command| command.used_for == CommandUse::Leases);
        let unused: Vec<_> = of_leases.filter(|command| !sent.contains(command.name)).collect();
        assert!(unused.is_empty(), "{unused:?}");
    }
}

#[test]
fn each_missing_command_is_named() {
    for binary in Binary::every().unwrap() {
        let server = start(&binary);
        for user in [REDIS, HYBRID] {
            for command in user.commands() {
                user.make_without(&server, Some(command));
                let rl = limiter(connection_of(&server));
                let found = missing(&rl, user);
                // Without `EVAL` the commands of scripts cannot be tried.
                let rules: Vec<&str> = found.iter().map(|missing| &*missing.rule).collect();
                assert_eq!(rules, [command.acl_rule()], "{}", binary.name());
                assert_eq!(found[0].is_optional, command.is_optional);
                let address = server.addr().to_string();
                assert_eq!(found[0].to_string(), format!("{} on {address}", command.acl_rule()));
            }
        }
        let keys = server.control().unwrap().command(&["DBSIZE"]).unwrap().integer();
        assert!(keys == Some(0) || is_expiring(&server), "the probe leaves nothing");
    }
}

/// Whether every key has a time to live. Without `DEL`, the key of the probe stays for ten seconds.
fn is_expiring(server: &Server) -> bool {
    let mut control = server.control().unwrap();
    let keys = control.command(&["KEYS", "*"]).unwrap();
    keys.items().iter().all(|key| control.command(&[b"PTTL", key.bytes()]).unwrap().integer() != Some(-1))
}

#[test]
fn keys_and_logins_that_are_not_permitted_are_named() {
    let server = Server::start().unwrap();
    REDIS.make_without(&server, None);
    let mut control = server.control().unwrap();
    control.command(&["ACL", "SETUSER", NAME, "resetkeys", "~other:*"]).unwrap();
    let rules: Vec<String> =
        missing(&limiter(connection_of(&server)), REDIS).into_iter().map(|missing| missing.rule).collect();
    assert_eq!(rules, ["~trypema:*"]);

    // A database other than 0 needs one more.
    REDIS.make_without(&server, None);
    let url = format!("{}/3", server.url_as(NAME, "secret"));
    let error = wait_for(RedisConnection::connect(&url)).unwrap_err();
    assert!(error.to_string().contains("select"), "{error}");
    User { target: CommandTarget::OtherDatabase, ..REDIS }.make_without(&server, None);
    let rl = limiter(connect(&url));
    assert_eq!(missing(&rl, REDIS), []);

    // A clock of the caller's own: scripts do not ask for the time.
    let time = RedisCommand::ALL.iter().find(|command| command.name == "time");
    REDIS.make_without(&server, time);
    let connection = connection_of(&server);
    let clock = Arc::new(trypema::clock::SystemClock);
    let rl = RateLimiter::builder().redis(connection).clock(clock).build().unwrap();
    assert_eq!(missing(&rl, REDIS), []);
}

/// A server that is away is a failure, and no statement about permissions.
#[test]
fn a_server_that_does_not_answer_lacks_no_permission() {
    let server = Server::start().unwrap();
    let rl = limiter(connect(&server.url()));
    server.kill_9().unwrap();
    let failure = wait_for(rl.redis().missing_permissions()).unwrap_err();
    assert!(failure.is_store_failure(), "{failure}");
}

/// Counts the failed calls.
#[derive(Debug, Default)]
struct FailedCalls(AtomicU64);

impl Observer for FailedCalls {
    fn decided(&self, _: &Event<'_>) {}

    fn store_called(&self, call: &StoreCall<'_>) {
        let is_refused = call.error.is_some_and(
            |error| matches!(error, TrypemaError::RedisError(failure) if failure.is_not_permitted()),
        );
        self.0.fetch_add(u64::from(is_refused), Ordering::Relaxed);
    }
}

/// The script call itself succeeds, and says of its requests that they failed.
#[test]
fn a_refusal_inside_a_batch_is_observed() {
    let server = Server::start().unwrap();
    REDIS.make_without(&server, RedisCommand::ALL.iter().find(|command| command.name == "get"));
    let failed = Arc::new(FailedCalls::default());
    let builder = RateLimiter::builder().redis(connection_of(&server)).redis_deadline(DEADLINE);
    let rl = builder.observer(failed.clone()).build().unwrap();
    let limit = Limit::from(FixedWindowLimit::new(10, Duration::from_secs(60)).unwrap());
    let checks = [Check::new("ann", &limit, 1), Check::new("bob", &limit, 1)];
    let error = wait_for(rl.redis().take_all(&checks)).unwrap_err();
    assert!(error.is_store_failure(), "{error}");
    assert_eq!(failed.0.load(Ordering::Relaxed), 1);
}

#[test]
fn every_node_of_a_cluster_is_probed() {
    Binary::every().unwrap().into_iter().for_each(is_probed_as_a_cluster);
}

fn is_probed_as_a_cluster(binary: Binary) {
    let cluster = Cluster::start_on(binary).unwrap();
    let user = User { target: CommandTarget::ClusterNode, ..HYBRID };
    let make = |node: &Server, left_out| user.make_without(node, left_out);
    cluster.nodes().iter().for_each(|node| make(node, None));
    let url = cluster.url().replace("://", &format!("://{NAME}:secret@"));
    let rl = limiter(connect(&url));
    assert_eq!(missing(&rl, user), []);
    let fixed = FixedWindowLimit::new(10, Duration::from_secs(60)).unwrap();
    for name in ["ann", "bob", "cid", "dan", "eve"] {
        let name = trypema_testkit::blocking::key(name);
        assert!(wait_for(rl.redis().fixed_window().take(&name, &fixed, 1)).unwrap().is_allowed());
    }
    cluster.nodes().iter().for_each(assert_nothing_was_refused);

    let primary = cluster.primary_of(0).unwrap();
    for name in ["asking", "set", "zadd"] {
        let left_out = RedisCommand::ALL.iter().find(|command| command.name == name);
        make(primary, left_out);
        let found: Vec<String> = missing(&rl, user).iter().map(ToString::to_string).collect();
        assert_eq!(found, [format!("+{name} on {}", primary.addr())]);
    }
    // Without the slot table there is no connection.
    let slots = RedisCommand::ALL.iter().find(|command| command.name == "cluster|slots");
    cluster.nodes().iter().for_each(|node| make(node, slots));
    let error = wait_for(RedisConnection::connect(&url)).unwrap_err();
    assert!(error.to_string().contains("cluster"), "{error}");
}

#[test]
fn the_user_of_the_sentinels_needs_two_commands() {
    Binary::every().unwrap().into_iter().for_each(is_probed_behind_sentinels);
}

fn is_probed_behind_sentinels(binary: Binary) {
    let sentinel = Sentinel::start_on(binary).unwrap();
    let user = User { target: CommandTarget::Monitored, ..REDIS };
    sentinel.servers().iter().for_each(|server| user.make_without(server, None));
    let rules = RedisCommand::ALL.iter().filter(|command| command.sent_to == CommandTarget::Sentinel);
    let rules: Vec<String> = rules.map(RedisCommand::acl_rule).collect();
    for node in sentinel.sentinels() {
        let mut words: Vec<String> =
            ["ACL", "SETUSER", "watcher", "reset", "on", ">watch", "resetchannels", "&+switch-master"]
                .map(str::to_owned)
                .into();
        words.extend(rules.clone());
        node.control().unwrap().command(&words).unwrap();
    }
    let url = sentinel.url().replace("://", &format!("://{NAME}:secret@"));
    let url = format!("{url}?sentinel_username=watcher&sentinel_password=watch");
    let connection = connect(&url);
    let rl = limiter(connection.clone());
    assert_eq!(missing(&rl, user), []);
    counters(&connection);
    sentinel.servers().iter().chain(sentinel.sentinels()).for_each(assert_nothing_was_refused);
    let role = RedisCommand::ALL.iter().find(|command| command.name == "role");
    user.make_without(sentinel.primary().unwrap(), role);
    let found = missing(&rl, user);
    assert_eq!((found[0].to_string().as_str(), found[0].is_optional), ("+role", true));
}
