//! Multi-key calls share script calls with other callers, and each is decided as if it had been sent alone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use trypema::{Limit, MultiDecision, RateLimiter, local, redis};
use trypema_testkit::blocking::{key, runtime, wait_for};
use trypema_testkit::random::Random;
use trypema_testkit::redis::{FaultProxy, Server, wait_until};

use super::calls::{self, Call};
use super::crowd::Crowd;
use super::lockstep::{limits, request};
use super::{FLIGHTS, add_alone, limiter, long_window, script_calls, tell_scripts};
use crate::all_or_nothing::asked::{Asked, View, checks};
use crate::strategies::Limits;

const WAVES: u64 = 100;
/// The number of callers in a wave. Their checks are few enough that all but the first callers share one
/// script call.
const WAVE: u64 = 40;

/// A caller with one check or with several.
#[derive(Debug)]
enum Caller {
    Alone(Call),
    Taking(Vec<Asked>),
    Reserving(Vec<Asked>),
    Peeking(Vec<Asked>),
}

/// The result of a caller.
#[derive(Debug, PartialEq)]
enum Told {
    Alone(calls::Told),
    MultiDecision { is_allowed: bool, decisions: Vec<View>, receipts: Vec<Option<u64>> },
}

fn told<R>(answer: MultiDecision<R>, units: impl Fn(&R) -> u64) -> Told {
    let MultiDecision { is_allowed, decisions, receipts } = answer;
    let decisions = decisions.iter().map(View::of).collect();
    let receipts = receipts.iter().map(|receipt| receipt.as_ref().map(&units)).collect();
    Told::MultiDecision { is_allowed, decisions, receipts }
}

impl Caller {
    fn random(random: &mut Random, keys: &[String], limits: &[[Limit; 2]]) -> Self {
        let asked = request(keys, limits, random);
        match random.below(6) {
            0 | 1 => Self::Taking(asked),
            2 => Self::Reserving(asked),
            3 => Self::Peeking(asked),
            _ => Self::Alone(Call::random(random, None)),
        }
    }

    async fn on_redis(&self, rl: &RateLimiter, limits: &[Limits; 2]) -> Told {
        let answer = match self {
            Self::Alone(call) => return Told::Alone(call.on_redis(rl, limits).await),
            Self::Taking(asked) => rl.redis().take_all(&checks(asked)).await,
            Self::Reserving(asked) => rl.redis().take_all_with_receipts(&checks(asked)).await,
            Self::Peeking(asked) => rl.redis().peek_all(&checks(asked)).await,
        };
        told(answer.unwrap(), redis::RedisReceipt::units)
    }

    fn on_local(&self, rl: &RateLimiter, limits: &[Limits; 2]) -> Told {
        let answer = match self {
            Self::Alone(call) => return Told::Alone(call.on_local(rl, limits)),
            Self::Taking(asked) => rl.local().take_all(&checks(asked)),
            Self::Reserving(asked) => rl.local().take_all_with_receipts(&checks(asked)),
            Self::Peeking(asked) => rl.local().peek_all(&checks(asked)),
        };
        told(answer.unwrap(), local::LocalReceipt::units)
    }
}

fn forget_statistics(server: &Server) {
    server.control().unwrap().command(&["CONFIG", "RESETSTAT"]).unwrap();
}

#[test]
fn requests_that_share_a_script_call_are_answered_as_the_local_provider_answers_them() {
    let server = Server::start().unwrap();
    let proxy = FaultProxy::start(server.addr()).unwrap();
    let (clock, rl) = limiter(&proxy.url());
    let _runtime = runtime().enter();
    let alone = [Limits::of(20, Duration::from_secs(60)), Limits::of(7, Duration::from_secs(60))];
    tell_scripts(&rl, &alone[0]);
    let (keys, limits) = (["ann", "bob", "c}d", "{"].map(str::to_owned), limits());
    let mut random = Random::seeded(11);
    for wave in 0..WAVES {
        clock.advance(Duration::from_micros(random.below(4_000_000)));
        let callers: Vec<Caller> = (0..WAVE).map(|_| Caller::random(&mut random, &keys, &limits)).collect();
        forget_statistics(&server);
        // No caller receives its reply before all have called.
        proxy.freeze();
        let mut crowd = Crowd::new();
        callers.iter().for_each(|caller| _ = crowd.add(caller.on_redis(&rl, &alone)));
        proxy.heal();
        let on_redis: Vec<Told> = crowd.finish().into_iter().flatten().collect();
        for (number, (caller, told)) in callers.iter().zip(&on_redis).enumerate() {
            assert_eq!(*told, caller.on_local(&rl, &alone), "wave {wave}, caller {number}: {caller:?}");
        }
        // The number of callers in the first batches depends on the runtime.
        let calls = script_calls(&server);
        assert!(
            (1..=FLIGHTS as u64 + 1).contains(&calls),
            "{calls} script calls: all others travel together"
        );
    }
}

const CALLERS: u64 = 600;
/// The capacities of two keys. A third of the callers takes from both.
const CAPACITIES: [u64; 2] = [250, 300];

/// Each key admits exactly its capacity, and each admitted caller sees a different remainder.
#[test]
fn callers_of_one_key_and_of_two_share_script_calls_and_get_their_own_answers() {
    let server = Server::start().unwrap();
    let (_, rl) = limiter(&server.url());
    let of = |index: usize, name: &str| Asked::new(name, &long_window(CAPACITIES[index]).into(), 1);
    let (ann, bob) = (of(0, "ann"), of(1, "bob"));
    let cases = [vec![ann.clone(), bob.clone()], vec![ann], vec![bob]];
    wait_for(rl.redis().take_all(&[])).unwrap();
    for asked in &cases {
        wait_for(rl.redis().peek_all(&checks(asked))).unwrap();
    }
    forget_statistics(&server);
    let take = |caller: u64| {
        let (rl, asked) = (Arc::clone(&rl), cases[caller as usize % 3].clone());
        runtime().spawn(async move {
            let answer = rl.redis().take_all(&checks(&asked)).await.unwrap();
            let left = asked
                .iter()
                .zip(&answer.decisions)
                .map(|(asked, told)| (asked.key.clone(), told.remaining()));
            if answer.is_allowed { left.collect() } else { Vec::new() }
        })
    };
    let callers: Vec<_> = (0..CALLERS).map(take).collect();
    let left: Vec<(String, u64)> = callers.into_iter().flat_map(|caller| wait_for(caller).unwrap()).collect();
    let calls = script_calls(&server);
    for (name, capacity) in ["ann", "bob"].into_iter().zip(CAPACITIES) {
        let left: Vec<u64> = left.iter().filter(|(key, _)| key == name).map(|(_, left)| *left).collect();
        assert_eq!(left.len() as u64, capacity, "{name}");
        assert_eq!(left.into_iter().collect::<BTreeSet<_>>(), (0..capacity).collect(), "{name}");
    }
    println!("{CALLERS} callers in {calls} script calls");
    assert!(calls < CALLERS / 5, "{calls} script calls");
}

/// Replies are held back until the test releases them.
const HELD: Duration = Duration::from_secs(10);

/// A caller with two keys is dropped: before its request is sent, it spends nothing; after that, it spends
/// both. The others get their replies.
#[test]
fn one_that_leaves_spends_all_or_nothing() {
    for is_sent in [false, true] {
        let server = Server::start().unwrap();
        let proxy = FaultProxy::start(server.addr()).unwrap();
        let (_, rl) = limiter(&proxy.url());
        let (windows, limit) = (rl.redis().fixed_window(), long_window(100));
        let asked = ["ann", "bob"].map(|name| Asked::new(name, &limit.into(), 3));
        wait_for(rl.redis().peek_all(&checks(&asked))).unwrap();
        let filler = key("filler");
        wait_for(windows.take(&filler, &limit, 0)).unwrap();
        proxy.delay(HELD);
        let _runtime = runtime().enter();
        let mut crowd = Crowd::new();
        let take = || async { windows.take(&filler, &limit, 1).await.unwrap().remaining() };
        (0..FLIGHTS).for_each(|_| add_alone(&mut crowd, &server, take()));
        let leaving =
            crowd.add(async { rl.redis().take_all(&checks(&asked)).await.unwrap().decisions[0].remaining() });
        (0..3).for_each(|_| _ = crowd.add(take()));
        let before = script_calls(&server);
        if is_sent {
            // After the first reply, a batch with all remaining callers is sent.
            proxy.release();
            let mut landed = false;
            while !landed {
                let woken = crowd.next_woken();
                landed = crowd.poll(woken);
            }
            wait_until("the next script call to arrive", || script_calls(&server) > before).unwrap();
        }
        crowd.cancel(leaving);
        proxy.heal();
        let left: BTreeSet<u64> = crowd.finish().into_iter().flatten().collect();
        assert_eq!(left.len(), FLIGHTS + 3, "everybody else has an answer of its own: {left:?}");
        let spent = if is_sent { 3 } else { 0 };
        let usage = wait_for(rl.redis().peek_all(&checks(&asked.map(|asked| asked.costing(0))))).unwrap();
        assert_eq!([0, 1].map(|index| usage.decisions[index].remaining()), [100 - spent; 2]);
    }
}
