//! Slots that move and primaries that are replaced or killed, under load.

use std::sync::Arc;
use std::time::Duration;

use trypema::{FixedWindowLimit, RateLimiter};
use trypema_testkit::blocking::{connect, key, wait_for};
use trypema_testkit::redis::{Cluster, wait_until};

use super::load::{Load, Outcome, used};

/// Keys in different slots. The first one's slot is moved.
const KEYS: [&str; 4] = ["moving", "one", "two", "three"];

/// Two seconds after the servers have agreed, with an allowance for a machine that does other work. `cargo xtask
/// soak faults` measures recovery.
const RECOVERY: Duration = Duration::from_secs(2 + 18);

/// A deadline that only a call without a reply exceeds.
const PATIENT: Duration = Duration::from_secs(10);
/// A deadline that calls to a dead server exceed soon.
const HASTY: Duration = Duration::from_millis(200);

fn limiter(cluster: &Cluster, deadline: Duration) -> Arc<RateLimiter> {
    let builder = RateLimiter::builder().redis(connect(&cluster.url())).redis_deadline(deadline);
    Arc::new(builder.build().unwrap())
}

fn slot_of_moving(cluster: &Cluster) -> u16 {
    cluster.slot_of("trypema:{moving}:absolute").unwrap()
}

/// Whether all nodes know the replica as one. Until then, a primary ignores its request for a failover and
/// the others do not vote.
fn is_known_as_replica(cluster: &Cluster, slot: u16) -> bool {
    let replica = format!(":{}@", cluster.replica_of(slot).unwrap().port());
    cluster.nodes().iter().all(|node| {
        let nodes = node.control().unwrap().command(&["CLUSTER", "NODES"]).unwrap();
        nodes.text().lines().any(|line| line.contains(&replica) && line.contains("slave"))
    })
}

/// Asserts that no call was counted twice and none failed with `CROSSSLOT`. Returns the units used.
fn assert_never_counted_twice(rl: &RateLimiter, name: &str, outcome: &Outcome) -> u64 {
    let used = used(rl, name);
    assert!(used <= outcome.admitted + outcome.unknown, "{name}: {used} used, {outcome:?}");
    assert!(!outcome.failures.iter().any(|failure| failure.contains("CROSSSLOT")), "{outcome:?}");
    used
}

#[test]
fn a_slot_that_moves_under_load_loses_and_repeats_nothing() {
    let cluster = Cluster::start().unwrap();
    let rl = limiter(&cluster, PATIENT);
    let load = Load::start(&rl, &KEYS);
    let slot = slot_of_moving(&cluster);
    let (from, to) = (cluster.primary_of(slot).unwrap(), cluster.other_primary(slot).unwrap());

    let migration = cluster.begin_migration(slot, to).unwrap();
    assert!(load.until_all_succeed() < RECOVERY);
    // A key that does not exist yet in a migrating slot is created on the new node, even by a client that
    // does not know of the migration.
    let limit = FixedWindowLimit::new(10, Duration::from_secs(86_400)).unwrap();
    for _ in 0..2 {
        let newcomer = limiter(&cluster, PATIENT);
        assert!(
            wait_for(newcomer.redis().fixed_window().take(&key("moving"), &limit, 2)).unwrap().is_allowed()
        );
    }
    migration.finish().unwrap();
    assert!(load.until_all_succeed() < RECOVERY);
    let usage = wait_for(rl.redis().fixed_window().usage(&key("moving"), &limit)).unwrap();
    assert_eq!(usage.remaining(), 6);

    cluster.migrate_slot(slot, from).unwrap();
    assert!(load.until_all_succeed() < RECOVERY);
    let stopped = load.stop();
    for name in KEYS {
        let outcome = stopped.outcome(name);
        assert_eq!(outcome.failures, Default::default(), "{name}");
        assert_eq!(used(&rl, name), outcome.admitted, "{name}");
    }
}

#[test]
fn a_failover_under_load_repeats_nothing_and_is_followed() {
    let cluster = Cluster::start().unwrap();
    let rl = limiter(&cluster, PATIENT);
    let load = Load::start(&rl, &KEYS);
    let slot = slot_of_moving(&cluster);
    // There and back, so that a client that stayed with the first primary would be noticed.
    for _ in 0..2 {
        wait_until("all nodes to know the replica", || is_known_as_replica(&cluster, slot)).unwrap();
        cluster.failover(slot).unwrap();
        let recovery = load.until_all_succeed();
        assert!(recovery < RECOVERY, "{recovery:?}");
    }
    let stopped = load.stop();
    for name in KEYS {
        let outcome = stopped.outcome(name);
        let used = assert_never_counted_twice(&rl, name, &outcome);
        assert!(used >= outcome.admitted, "{name}: {used} used, {outcome:?}");
    }
}

/// Replication is asynchronous: writes that a primary had not replicated are lost with it. Nothing is counted
/// twice.
#[test]
fn a_killed_primary_is_replaced_and_nothing_is_counted_twice() {
    let cluster = Cluster::start().unwrap();
    let rl = limiter(&cluster, HASTY);
    let load = Load::start(&rl, &KEYS);
    let killed = cluster.kill_primary_of(slot_of_moving(&cluster)).unwrap();
    cluster.wait_until_ok().unwrap();
    let recovery = load.until_all_succeed();
    assert!(recovery < RECOVERY, "{recovery:?}");
    killed.restart().unwrap();
    cluster.wait_until_ok().unwrap();
    assert!(load.until_all_succeed() < RECOVERY);
    let stopped = load.stop();
    for name in KEYS {
        assert_never_counted_twice(&rl, name, &stopped.outcome(name));
    }
}
