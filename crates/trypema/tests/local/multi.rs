//! Several limits checked in one local call: all are taken or none.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

mod overflow;
mod threads;

use std::sync::Arc;

use trypema::RateLimiter;
use trypema::clock::ManualClock;

use crate::all_or_nothing::provider::{OnLocal, Provider};
use crate::all_or_nothing::told::Recorder;
use crate::all_or_nothing::{asked, contention, denials, invalid, postpaid, receipts, stepped_back, told};

fn keys() -> [String; 5] {
    ["ann", "bob", "cid", "dan", "eve"].map(str::to_owned)
}

/// A local provider whose clock stands still.
fn local() -> OnLocal {
    on_clock(&Arc::new(ManualClock::default()))
}

fn on_clock(clock: &Arc<ManualClock>) -> OnLocal {
    OnLocal(Arc::new(RateLimiter::builder().clock(clock.clone()).build().unwrap()))
}

#[test]
fn denied_by_the_last_of_five_the_others_are_as_they_were() {
    denials::the_last_of_five_denies(&local(), &keys());
}

#[test]
fn denied_by_any_of_five_none_is_spent() {
    denials::any_of_five_denies(&local(), &keys());
}

#[test]
fn many_at_once_spend_what_is_admitted() {
    denials::many_at_once(&local(), &keys());
}

#[test]
fn overlapping_requests_spend_what_is_admitted() {
    contention::spent_is_what_was_admitted(&local(), &keys());
}

#[test]
fn keys_come_back_when_the_clock_is_set_right() {
    let clock = Arc::new(ManualClock::default());
    stepped_back::keys_come_back_after_a_window(&on_clock(&clock), &clock, &keys());
}

#[test]
fn postpaid_checks_are_spent_with_the_others_or_not_at_all() {
    postpaid::overdraws_once(&local(), &keys());
    postpaid::records_nothing_if_another_denies(&local(), &keys());
    postpaid::is_refunded_by_its_receipt(&local(), &keys());
}

#[test]
fn receipts_are_good_once() {
    receipts::are_good_once(&local(), &keys());
}

#[test]
fn receipts_are_of_what_was_reserved() {
    receipts::are_of_what_was_reserved(&local(), &keys());
}

#[test]
fn receipts_are_good_for_their_own_key() {
    receipts::are_good_for_their_own_key(&local(), &keys());
}

#[test]
fn receipts_are_void_after_a_reset() {
    receipts::are_void_after_a_reset(&local(), &keys());
}

#[test]
fn what_cannot_be_asked_together_is_an_error_and_spends_nothing() {
    let local = local();
    invalid::too_many(&local);
    invalid::the_same_key_twice(&local, &keys());
    invalid::none_at_all(&local);
}

#[test]
fn each_check_is_told_once() {
    let recorder = Arc::new(Recorder::default());
    let builder = RateLimiter::builder().clock(Arc::new(ManualClock::default())).observer(recorder.clone());
    told::each_check_is_told_once(&OnLocal(Arc::new(builder.build().unwrap())), &recorder, &keys());
}

/// Keys that Redis would reject, and keys that are too long to store unhashed.
#[test]
fn any_text_is_a_key() {
    let long = "x".repeat(1_000);
    let keys = ["", ":", "a:b", "\0", &long, &format!("{long}y")].map(str::to_owned);
    let limit = &asked::six(3, std::time::Duration::from_secs(60), 2.0)[0];
    let asked = keys.map(|key| asked::Asked::new(&key, limit, 2));
    assert!(local().take_all(&asked).unwrap().is_allowed);
}
