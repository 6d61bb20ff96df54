//! Multi-key calls on one server: the cases that every provider must pass, and the stored keys.

use std::sync::Arc;

use trypema::clock::ManualClock;
use trypema_testkit::blocking::{self, connect};
use trypema_testkit::redis::Server;

use super::limiter;
use super::lockstep::{Walk, walk};
use super::on_redis::OnRedis;
use crate::all_or_nothing::asked::{Asked, six};
use crate::all_or_nothing::provider::{OnLocal, Provider};
use crate::all_or_nothing::told::Recorder;
use crate::all_or_nothing::{contention, denials, invalid, postpaid, receipts, stepped_back, told};

fn keys() -> [String; 5] {
    ["ann", "bob", "cid", "dan", "eve"].map(str::to_owned)
}

fn on_redis(server: &Server) -> OnRedis<'_> {
    OnRedis { rl: limiter(&server.url()).1, control: Box::new(|_| server.control().unwrap()) }
}

fn keys_in(server: &Server) -> i64 {
    server.control().unwrap().command(&["DBSIZE"]).unwrap().integer().unwrap()
}

#[test]
fn denied_by_the_last_of_five_the_others_are_as_they_were() {
    let server = Server::start().unwrap();
    denials::the_last_of_five_denies(&on_redis(&server), &keys());
    // Five states in each of six arrangements, and neither a reset counter nor a receipt beside them.
    assert_eq!(keys_in(&server), 30);
}

#[test]
fn denied_by_any_of_five_none_is_spent() {
    let server = Server::start().unwrap();
    denials::any_of_five_denies(&on_redis(&server), &keys());
    assert_eq!(keys_in(&server), 0);
}

#[test]
fn many_at_once_spend_what_is_admitted() {
    denials::many_at_once(&on_redis(&Server::start().unwrap()), &keys());
}

#[test]
fn overlapping_requests_spend_what_is_admitted() {
    contention::spent_is_what_was_admitted(&on_redis(&Server::start().unwrap()), &keys());
}

#[test]
fn keys_come_back_when_the_clock_is_set_right() {
    let server = Server::start().unwrap();
    let (clock, rl) = limiter(&server.url());
    let redis = OnRedis { rl, ..on_redis(&server) };
    stepped_back::keys_come_back_after_a_window(&redis, &clock, &keys());
}

#[test]
fn postpaid_checks_are_spent_with_the_others_or_not_at_all() {
    postpaid::overdraws_once(&on_redis(&Server::start().unwrap()), &keys());
    postpaid::records_nothing_if_another_denies(&on_redis(&Server::start().unwrap()), &keys());
    postpaid::is_refunded_by_its_receipt(&on_redis(&Server::start().unwrap()), &keys());
}

#[test]
fn receipts_are_good_once() {
    receipts::are_good_once(&on_redis(&Server::start().unwrap()), &keys());
}

#[test]
fn receipts_are_of_what_was_reserved() {
    receipts::are_of_what_was_reserved(&on_redis(&Server::start().unwrap()), &keys());
}

#[test]
fn receipts_are_good_for_their_own_key() {
    receipts::are_good_for_their_own_key(&on_redis(&Server::start().unwrap()), &keys());
}

#[test]
fn receipts_are_void_after_a_reset() {
    receipts::are_void_after_a_reset(&on_redis(&Server::start().unwrap()), &keys());
}

#[test]
fn what_cannot_be_asked_together_is_an_error_and_spends_nothing() {
    let server = Server::start().unwrap();
    let redis = on_redis(&server);
    invalid::none_at_all(&redis);
    assert_eq!(keys_in(&server), 0);
    invalid::too_many(&redis);
    invalid::the_same_key_twice(&redis, &keys());
}

/// Keys that `RedisKey::try_from` rejects are encoded, and have separate counters.
#[test]
fn keys_of_any_bytes_are_counted_apart() {
    let server = Server::start().unwrap();
    let redis = on_redis(&server);
    let limit = &six(10, std::time::Duration::from_secs(60), 2.0)[0];
    let long = "x".repeat(256);
    let keys = ["", "a:b", "a_b", "a%3Ab", &long, &long[1..]];
    let asked: Vec<Asked> = keys.iter().map(|key| Asked::new(key, limit, 10)).collect();
    assert!(redis.take_all(&asked).unwrap().is_allowed);
    assert_eq!(keys_in(&server), 6);
    assert!(!redis.peek_all(&[Asked::new("a:b", limit, 1)]).unwrap().is_allowed);
}

#[test]
fn each_check_is_told_once() {
    let server = Server::start().unwrap();
    let (recorder, clock) = (Arc::new(Recorder::default()), Arc::new(ManualClock::default()));
    let builder = blocking::limiter(&connect(&server.url()), "trypema", &clock).observer(recorder.clone());
    let redis = OnRedis { rl: Arc::new(builder.build().unwrap()), ..on_redis(&server) };
    told::each_check_is_told_once(&redis, &recorder, &keys());
}

#[test]
fn random_requests_are_answered_as_the_local_provider_answers_them() {
    for seed in 0..2 {
        let server = Server::start().unwrap();
        let (clock, rl) = limiter(&server.url());
        let redis = OnRedis { rl: Arc::clone(&rl), ..on_redis(&server) };
        walk((&OnLocal(rl), &redis), &clock, &keys(), Walk { seed, steps: 2_500 });
    }
}
