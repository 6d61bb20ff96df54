//! Multi-key calls whose keys are on different servers: the cases that every provider must pass.

use std::collections::BTreeMap;
use std::sync::Arc;

use trypema::clock::ManualClock;
use trypema_testkit::blocking::{self, connect};
use trypema_testkit::redis::{Cluster, Server};

use crate::all_or_nothing::provider::OnLocal;
use crate::all_or_nothing::told::Recorder;
use crate::all_or_nothing::{contention, denials, invalid, postpaid, receipts, stepped_back, told};
use crate::batching::lockstep::{Walk, walk};
use crate::batching::on_redis::OnRedis;

/// A Cluster without automatic failover, however busy the machine is.
pub(crate) fn steady() -> Cluster {
    let cluster = Cluster::start().unwrap();
    for node in cluster.nodes() {
        let mut control = node.control().unwrap();
        control.command(&["CONFIG", "SET", "cluster-node-timeout", "60000"]).unwrap();
    }
    cluster
}

/// The primary that stores a key.
pub(crate) fn server_of<'c>(cluster: &'c Cluster, key: &str) -> &'c Server {
    cluster.primary_of(cluster.slot_of(key).unwrap()).unwrap()
}

/// Five keys that start with `name`, in different slots, on all three servers in turn.
pub(crate) fn spread(cluster: &Cluster, name: &str) -> [String; 5] {
    let mut by_server: BTreeMap<u16, Vec<(u16, String)>> = BTreeMap::new();
    for number in 0.. {
        let key = format!("{name} {number}");
        let found = by_server.entry(server_of(cluster, &key).port()).or_default();
        let slot = cluster.slot_of(&key).unwrap();
        if !found.iter().any(|(other, _)| *other == slot) {
            found.push((slot, key));
        }
        if by_server.len() == 3 && by_server.values().all(|found| found.len() >= 2) {
            break;
        }
    }
    let turns = (0..2).flat_map(|turn| by_server.values().map(move |found| found[turn].1.clone()));
    turns.take(5).collect::<Vec<_>>().try_into().unwrap()
}

fn on_cluster(cluster: &Cluster) -> (Arc<ManualClock>, Arc<Recorder>, OnRedis<'_>) {
    let (clock, recorder) = (Arc::new(ManualClock::default()), Arc::new(Recorder::default()));
    let builder = blocking::limiter(&connect(&cluster.url()), "trypema", &clock).observer(recorder.clone());
    let control = Box::new(|key: &str| server_of(cluster, key).control().unwrap());
    (clock, recorder, OnRedis { rl: Arc::new(builder.build().unwrap()), control })
}

#[test]
fn what_one_check_denies_is_spent_on_no_server() {
    let cluster = steady();
    let (_, _, redis) = on_cluster(&cluster);
    denials::the_last_of_five_denies(&redis, &spread(&cluster, "last"));
    denials::any_of_five_denies(&redis, &spread(&cluster, "any"));
    postpaid::overdraws_once(&redis, &spread(&cluster, "overdrawn"));
    postpaid::records_nothing_if_another_denies(&redis, &spread(&cluster, "denied"));
    postpaid::is_refunded_by_its_receipt(&redis, &spread(&cluster, "refunded"));
}

#[test]
fn what_many_ask_at_once_is_spent_where_it_was_admitted() {
    let cluster = steady();
    let (_, _, redis) = on_cluster(&cluster);
    denials::many_at_once(&redis, &spread(&cluster, "many"));
    contention::spent_is_what_was_admitted(&redis, &spread(&cluster, "overlapping"));
}

#[test]
fn receipts_errors_observers_and_clocks_are_as_everywhere() {
    let cluster = steady();
    let (clock, recorder, redis) = on_cluster(&cluster);
    told::each_check_is_told_once(&redis, &recorder, &spread(&cluster, "told"));
    receipts::are_good_once(&redis, &spread(&cluster, "once"));
    receipts::are_of_what_was_reserved(&redis, &spread(&cluster, "reserved"));
    receipts::are_good_for_their_own_key(&redis, &spread(&cluster, "own"));
    receipts::are_void_after_a_reset(&redis, &spread(&cluster, "void"));
    invalid::none_at_all(&redis);
    invalid::too_many(&redis);
    invalid::the_same_key_twice(&redis, &spread(&cluster, "twice"));
    stepped_back::keys_come_back_after_a_window(&redis, &clock, &spread(&cluster, "stepped back"));
}

/// Without concurrent callers, a Cluster returns the same results as one server.
#[test]
fn random_requests_are_answered_as_the_local_provider_answers_them() {
    let cluster = steady();
    let (clock, _, redis) = on_cluster(&cluster);
    let local = OnLocal(Arc::clone(&redis.rl));
    walk((&local, &redis), &clock, &spread(&cluster, "random"), Walk { seed: 3, steps: 1_500 });
}
