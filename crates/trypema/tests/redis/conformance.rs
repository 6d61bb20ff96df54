//! Every trace, and random ones, on the Redis provider with each supported server.
#![cfg(feature = "redis-tokio")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use trypema_testkit::blocking::connect;
use trypema_testkit::differential;
use trypema_testkit::for_each_model;
use trypema_testkit::redis::{Binary, Server};
use trypema_testkit::subject::RedisStrategy;
use trypema_testkit::trace::{OnRedis, Trace, Verb, What};

use crate::traces;

/// The number of steps in random traces per strategy. `cargo xtask soak --redis` runs more.
const STEPS: usize = 40_000;
/// The number of steps on the oldest server, where only its Lua could differ.
const STEPS_ON_OLDEST: usize = 25_000;

/// The number of threads that replay traces concurrently.
const THREADS: u64 = 4;

/// Starts a server with this binary.
fn server(binary: Binary) -> Server {
    Server::builder().binary(binary).start().unwrap()
}

#[test]
fn traces_on_redis() {
    let server = Server::shared().unwrap();
    answers_every_trace(server.url(), &server.unique_prefix());
}

#[test]
fn traces_on_redis_6_2() {
    answers_every_trace(&server(Binary::redis_6_2().unwrap()).url(), "trypema");
}

#[test]
fn traces_on_valkey() {
    answers_every_trace(&server(Binary::valkey().unwrap()).url(), "trypema");
}

fn answers_every_trace(url: &str, prefix: &str) {
    let connection = connect(url);
    let all = traces::all();
    let ours: Vec<&Trace> = all.iter().filter(|trace| !forgets(trace)).collect();
    assert!(ours.len() > 10 * (all.len() - ours.len()), "nearly all traces are for Redis, too");
    let run = |trace: &&Trace| {
        let prefix = format!("{prefix}_{}", trace.name);
        traces::failures(trace, &mut OnRedis::for_trace(trace, &connection, &prefix).unwrap())
    };
    traces::assert_none(&ours.iter().flat_map(run).collect::<Vec<_>>());
}

/// Whether a trace has an explicit `forget`. Redis expires keys by itself: see `expiry.rs`.
fn forgets(trace: &Trace) -> bool {
    trace.lines.iter().any(|line| matches!(&line.what, What::Step(step) if matches!(step.verb, Verb::Forget)))
}

/// Plays random traces on a separate server with several threads, until enough steps have been compared.
fn equals_its_model<M: RedisStrategy>(binary: Binary, enough: usize) {
    let server = server(binary);
    let connection = connect(&server.url());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let connection = &connection;
            scope.spawn(move || {
                let mut steps = 0;
                let mut seed = thread;
                while steps < enough / THREADS as usize {
                    match differential::redis::<M>(connection, seed) {
                        Ok(played) => steps += played,
                        Err(difference) => panic!("{difference}"),
                    }
                    seed += THREADS;
                }
            });
        }
    });
}

macro_rules! random_traces {
    ($($name:ident $model:ty;)+) => {
        mod random_traces_on_redis {
            use super::*;
            $(#[test]
            fn $name() {
                equals_its_model::<$model>(Binary::redis().unwrap(), STEPS);
            })+
        }
        mod random_traces_on_redis_6_2 {
            use super::*;
            $(#[test]
            fn $name() {
                equals_its_model::<$model>(Binary::redis_6_2().unwrap(), STEPS_ON_OLDEST);
            })+
        }
    };
}
for_each_model! { [random_traces] }
