//! A Cluster of three primaries and three replicas: every strategy, any key, and slots that move under load.
#![cfg(feature = "redis-tokio")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

mod between;
mod keys;
pub(crate) mod load;
mod moving;
mod multi;

use trypema::redis::RedisConnection;
use trypema_testkit::blocking::connect;
use trypema_testkit::differential;
use trypema_testkit::for_each_model;
use trypema_testkit::redis::Cluster;
use trypema_testkit::subject::RedisStrategy;
use trypema_testkit::trace::{OnRedis, Verb, What};

use crate::server_of::port_of;
use crate::traces;

/// The number of random traces per strategy. `conformance.rs` runs many more on one server.
const TRACES: u64 = 30;

macro_rules! each_equals_its_model {
    (($connection:expr) $($name:ident $model:ty;)+) => {
        $(equals_its_model::<$model>($connection);)+
    };
}

#[test]
fn every_trace_and_random_ones_are_answered_as_on_one_server() {
    let cluster = Cluster::start().unwrap();
    let connection = connect(&cluster.url());
    let mut failures = Vec::new();
    for (number, trace) in traces::all().iter().enumerate() {
        let forgets = |what: &What| matches!(what, What::Step(step) if matches!(step.verb, Verb::Forget));
        if !trace.lines.iter().any(|line| forgets(&line.what)) {
            let mut provider = OnRedis::for_trace(trace, &connection, &format!("trace_{number}")).unwrap();
            failures.extend(traces::failures(trace, &mut provider));
        }
    }
    traces::assert_none(&failures);
    for_each_model! { [each_equals_its_model] (&connection) }
}

fn equals_its_model<M: RedisStrategy>(connection: &RedisConnection) {
    for seed in 0..TRACES {
        if let Err(difference) = differential::redis::<M>(connection, seed) {
            panic!("{difference}");
        }
    }
}

#[test]
fn the_server_of_a_key_is_the_owner_of_its_slot_now() {
    let cluster = Cluster::start().unwrap();
    let connection = connect(&cluster.url());
    let owner_of = |key: &str| cluster.primary_of(cluster.slot_of(key).unwrap()).unwrap().port();
    let keys: Vec<String> = (0..20).map(|number| format!("own:{{{number}}}:rules")).collect();
    for key in &keys {
        assert_eq!(port_of(&connection, key), owner_of(key), "{key}");
    }
    assert!(keys.iter().any(|key| owner_of(key) != owner_of(&keys[0])), "they are on several nodes");

    let moved = cluster.slot_of(&keys[0]).unwrap();
    let to = cluster.other_primary(moved).unwrap();
    cluster.migrate_slot(moved, to).unwrap();
    assert_eq!(port_of(&connection, &keys[0]), to.port());
    assert_eq!(port_of(&connection, &keys[1]), owner_of(&keys[1]), "another slot has stayed");
}
