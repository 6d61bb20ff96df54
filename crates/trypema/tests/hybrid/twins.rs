//! Leases in Redis equal leases in Rust: the same random leases, takes, refunds and resets run on both and
//! are compared after each step.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod long_state;
mod mirror;
mod steps;

use std::sync::Arc;

use trypema::RateLimiter;
use trypema::clock::{ManualClock, Timestamp};
use trypema::redis::{InstanceLiveness, LeaseArgs, RedisLimiter, RedisReceipt};
use trypema::strategy::{Leasable, Strategy};
use trypema_testkit::blocking::{connect, key, limiter, wait_for};
use trypema_testkit::for_each_model;
use trypema_testkit::model::LiveInstances;
use trypema_testkit::random::Random;
use trypema_testkit::redis::Server;
use trypema_testkit::subject::RedisStrategy;

use mirror::{Mirror, seen, shown};
use steps::{Step, Steps, Verb};

/// The number of steps per strategy, in traces of some dozens.
const STEPS: usize = 6_000;

type CoreOf<M> = <M as trypema_testkit::subject::LocalStrategy>::Strategy;

/// The Redis implementation.
struct Original<'a, M: RedisStrategy> {
    clock: &'a ManualClock,
    limits: &'a RateLimiter,
    receipts: Vec<RedisReceipt>,
    /// Whether the last step reset an existing key.
    is_reset: bool,
    strategy: std::marker::PhantomData<M>,
}

impl<M: RedisStrategy> Original<'_, M> {
    fn limiter(&self) -> &RedisLimiter<CoreOf<M>> {
        M::redis_limiter(self.limits)
    }

    /// Runs `step` on Redis. Returns the reply in comparable form.
    fn play(&mut self, name: &str, step: &Step<M>) -> String {
        self.clock.set(Timestamp::from_micros(step.now_us));
        let (limit, ann) = (M::limit(&step.limit), key(name));
        let now = Timestamp::from_micros(step.now_us);
        match step.verb {
            Verb::Lease { ask, from } => {
                let instance = InstanceLiveness { id: from.instance, live_for_us: from.live_for_us };
                let told = wait_for(self.limiter().lease(&ann, &limit, LeaseArgs { params: ask, instance }))
                    .unwrap();
                assert_eq!(told.now, now);
                let leased = shown::<M>(&limit, &told.lease, now);
                format!("{leased} of {} instances after {} resets", told.instances, told.resets)
            }
            Verb::Take(cost) => seen::<M>(&wait_for(self.limiter().take(&ann, &limit, cost)).unwrap()),
            Verb::Postpaid(cost) => {
                seen::<M>(&wait_for(self.limiter().take_postpaid(&ann, &limit, cost)).unwrap())
            }
            Verb::Debit(cost) => seen::<M>(&wait_for(self.limiter().debit(&ann, &limit, cost)).unwrap()),
            Verb::Peek(cost) => seen::<M>(&wait_for(self.limiter().peek(&ann, &limit, cost)).unwrap()),
            Verb::Reserve(cost) => {
                let reserved = wait_for(self.limiter().take_with_receipt(&ann, &limit, cost)).unwrap();
                let answer = format!("{} {:?}", seen::<M>(&reserved.decision), reserved.receipt.is_some());
                self.receipts.extend(reserved.receipt);
                answer
            }
            Verb::Refund(index) => match self.receipts.get(index).cloned() {
                Some(receipt) => wait_for(self.limiter().refund(&ann, &limit, &receipt)).unwrap().to_string(),
                None => String::new(),
            },
            Verb::RefundUnits(units) => {
                wait_for(self.limiter().refund_units(&ann, &limit, units)).unwrap().to_string()
            }
            Verb::Reset => {
                self.is_reset = wait_for(self.limiter().reset(&ann)).unwrap();
                String::new()
            }
        }
    }
}

/// Redis counts heartbeats as the Rust model does.
#[test]
fn live_instances() {
    let server = Server::start().unwrap();
    let clock = Arc::new(ManualClock::default());
    let limits = limiter(&connect(&server.url()), "trypema", &clock).build().unwrap();
    let (mut model, mut random, mut now_us) = (LiveInstances::default(), Random::seeded(7), 1_000_000_000);
    for step in 0..2_000 {
        // Some of these steps are exactly as long as an instance stays live.
        now_us += random.pick(&[0, 1, 300, 999_999, 1_000_000, 3_000_000]);
        clock.set(Timestamp::from_micros(now_us));
        let instance =
            InstanceLiveness { id: random.below(9), live_for_us: random.pick(&[0, 1, 1_000_000, 3_000_000]) };
        let counted = wait_for(limits.redis().heartbeat(instance)).unwrap();
        let expected = model.heartbeat(instance.id, now_us, instance.live_for_us);
        assert_eq!(u64::from(counted), expected, "step {step}: {instance:?} at {now_us}");
    }
}

/// Plays the trace of `seed`. Returns the number of steps and of leased units.
fn play<M>(limits: &RateLimiter, clock: &ManualClock, seed: u64) -> (usize, u64)
where
    M: RedisStrategy,
{
    let name = format!("{}_{seed}", M::NAME);
    let strategy = std::marker::PhantomData;
    let mut original = Original::<M> { clock, limits, receipts: Vec::new(), is_reset: false, strategy };
    let mut mirror = Mirror::<M>::default();
    let mut steps = Steps::<M>::new(seed);
    let mut played = Vec::new();
    while let Some(step) = steps.next_step() {
        let actual = original.play(&name, &step);
        let expected = mirror.play(&step, original.is_reset);
        steps.note(&mirror);
        played.push(format!("{step} -> {expected}"));
        assert!(
            expected == actual,
            "{} seed {seed}:\n{}\nbut Redis answered\n{actual}",
            M::NAME,
            played.join("\n")
        );
    }
    (played.len(), mirror.leased_units)
}

fn equals_its_twin<M: RedisStrategy>() {
    let server = Server::start().unwrap();
    let clock = Arc::new(ManualClock::default());
    let limits = limiter(&connect(&server.url()), "trypema", &clock).build().unwrap();
    let (mut steps, mut leased, mut seed) = (0, 0, 0);
    while steps < STEPS {
        let (played, units) = play::<M>(&limits, &clock, seed);
        (steps, leased, seed) = (steps + played, leased + units, seed + 1);
    }
    let enough = if CoreOf::<M>::IS_LEASED { STEPS as u64 / 10..=u64::MAX } else { 0..=0 };
    assert!(enough.contains(&leased), "{leased} units were leased in {seed} traces of {}", CoreOf::<M>::NAME);
}

macro_rules! twins {
    ($($name:ident $model:ty;)+) => {
        $(#[test]
        fn $name() {
            equals_its_twin::<$model>();
        })+
    };
}
for_each_model! { [twins] }
