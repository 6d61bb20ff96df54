//! Cluster and Sentinel form, fail over and recover.

use trypema_testkit::redis::{Binary, Cluster, Reply, Sentinel, Server};

fn set(server: &Server, key: &str, value: &str) {
    server.control().unwrap().command(&["SET", key, value]).unwrap();
}

fn cluster_fails_over_and_recovers(binary: Binary) {
    let cluster = Cluster::start_on(binary).unwrap();
    assert_eq!(cluster.url().matches("127.0.0.1:").count(), cluster.nodes().len());
    let slot = cluster.slot_of("key").unwrap();
    let primary = cluster.primary_of(slot).unwrap();
    let replica = cluster.replica_of(slot).unwrap();
    set(primary, "key", "1");
    cluster.failover(slot).unwrap();
    assert_eq!(cluster.primary_of(slot).unwrap().port(), replica.port());
    set(replica, "key", "2");

    let killed = cluster.kill_primary_of(slot).unwrap();
    assert_eq!(killed.port(), replica.port());
    cluster.wait_until_ok().unwrap();
    assert_eq!(cluster.primary_of(slot).unwrap().port(), primary.port());
    set(primary, "key", "3");

    killed.restart().unwrap();
    cluster.wait_until_ok().unwrap();
    assert_eq!(cluster.replica_of(slot).unwrap().port(), killed.port());
}

fn sentinels_fail_over_and_recover(binary: Binary) {
    let sentinel = Sentinel::start_on(binary).unwrap();
    assert!(sentinel.url().starts_with("redis+sentinel://127.0.0.1:"), "{}", sentinel.url());
    assert!(sentinel.url().ends_with("/mymaster"), "{}", sentinel.url());
    let first = sentinel.primary().unwrap();
    set(first, "key", "1");
    sentinel.failover().unwrap();
    let second = sentinel.primary().unwrap();
    assert_ne!(first.port(), second.port());
    set(second, "key", "2");

    let killed = sentinel.kill_primary().unwrap();
    assert_eq!(killed.port(), second.port());
    sentinel.wait_until_settled().unwrap();
    let third = sentinel.primary().unwrap();
    assert_ne!(third.port(), second.port());
    set(third, "key", "3");

    killed.restart().unwrap();
    sentinel.wait_until_replicating().unwrap();
    assert_eq!(killed.control().unwrap().command(&["GET", "key"]).unwrap().text(), "3");
}

#[test]
fn a_cluster_fails_over_on_demand_and_after_a_kill() {
    cluster_fails_over_and_recovers(Binary::redis().unwrap());
}

#[test]
fn a_cluster_of_redis_6_2_fails_over_too() {
    cluster_fails_over_and_recovers(Binary::redis_6_2().unwrap());
}

#[test]
fn sentinels_fail_over_on_demand_and_after_a_kill() {
    sentinels_fail_over_and_recover(Binary::redis().unwrap());
}

#[test]
fn sentinels_of_redis_6_2_fail_over_too() {
    sentinels_fail_over_and_recover(Binary::redis_6_2().unwrap());
}

#[test]
fn a_slot_moves_with_its_keys() {
    let cluster = Cluster::start().unwrap();
    let slot = cluster.slot_of("{tag}").unwrap();
    let (from, to) = (cluster.primary_of(slot).unwrap(), cluster.other_primary(slot).unwrap());
    assert_ne!(from.port(), to.port());
    for number in 0..250 {
        set(from, &format!("{{tag}}{number}"), "1");
    }
    let migration = cluster.begin_migration(slot, to).unwrap();
    let asked = from.control().unwrap().raw(&["GET", "{tag}new"]).unwrap();
    assert_eq!(asked, Reply::Error(format!("ASK {slot} {}", to.addr())));
    migration.finish().unwrap();

    assert_eq!(cluster.primary_of(slot).unwrap().port(), to.port());
    let moved = from.control().unwrap().raw(&["GET", "{tag}7"]).unwrap();
    assert_eq!(moved, Reply::Error(format!("MOVED {slot} {}", to.addr())));
    let count = to.control().unwrap().command(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]).unwrap();
    assert_eq!(count.integer(), Some(250));
    cluster.migrate_slot(slot, from).unwrap();
    assert_eq!(cluster.primary_of(slot).unwrap().port(), from.port());
}
