//! Waiting until a take is admitted.
#![cfg(feature = "redis-tokio")]

use crate::shared_wait::scene::Redis;
use crate::shared_wait::{self, failing, waiters};

#[test]
fn a_waiter_is_admitted_when_it_was_told() {
    shared_wait::a_waiter_is_admitted_when_it_was_told::<Redis>();
}

#[test]
fn a_pointless_wait_ends_at_once() {
    shared_wait::a_pointless_wait_ends_at_once::<Redis>();
}

#[test]
fn a_wait_that_fits_is_one_call() {
    shared_wait::a_wait_that_fits_is_one_call::<Redis>();
}

#[test]
fn waiters_never_exceed_the_limit() {
    waiters::waiters_never_exceed_the_limit::<Redis>();
}

#[test]
fn first_come_is_first_served() {
    waiters::first_come_is_first_served::<Redis>();
}

#[test]
fn a_waiter_that_leaves_spends_nothing() {
    waiters::a_waiter_that_leaves_spends_nothing::<Redis>();
}

#[test]
fn a_failure_while_waiting_is_what_the_policy_says() {
    failing::a_failure_while_waiting_is_what_the_policy_says::<Redis>();
}

#[test]
fn a_wait_goes_on_while_the_policy_denies() {
    failing::a_wait_goes_on_while_the_policy_denies::<Redis>();
}
