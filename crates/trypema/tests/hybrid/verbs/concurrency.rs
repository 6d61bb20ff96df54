//! Concurrency: Redis takes every unit, and instances neither lease units nor remember denials.

use std::collections::HashMap;
use std::time::Duration;

use trypema::clock::Clock;
use trypema::hybrid::HybridReceipt;
use trypema::strategy::Concurrency;
use trypema::{ConcurrencyLimit, Decision, Limit, RateLimiter};
use trypema_testkit::blocking::{key, wait_for};
use trypema_testkit::subject::HybridStrategy;
use trypema_testkit::trace::{
    Answer, Head, Provider, TimedCall, Trace, Unsupported, Value, Verb, Wait, What,
};

use super::scene::{SYNC, Scene, WINDOW, held, take};
use crate::traces;

fn limit(units: u64) -> ConcurrencyLimit {
    Concurrency::limit(units, WINDOW)
}

#[test]
fn a_release_is_seen_by_every_instance_at_once() {
    let scene = Scene::start();
    let (ann, limit) = (key("ann"), limit(2));
    let [holder, other] = [scene.instance(), scene.instance()];
    let receipt =
        wait_for(holder.hybrid().concurrency().take_with_receipt(&ann, &limit, 2)).unwrap().receipt.unwrap();
    for rl in [&holder, &other] {
        let denied = take::<Concurrency>(rl, "ann", &limit, 1);
        assert_eq!((denied.is_allowed(), denied.retry_after()), (false, Some(Duration::from_secs(1))));
    }
    let released = holder.hybrid().concurrency().refund(&ann, &limit, &receipt);
    assert_eq!(wait_for(released).unwrap(), 2);
    // The clock stands still, so a denial that were remembered would still be in force.
    assert!(take::<Concurrency>(&other, "ann", &limit, 1).is_allowed());
    assert!(take::<Concurrency>(&holder, "ann", &limit, 1).is_allowed());
    assert!(!take::<Concurrency>(&holder, "ann", &limit, 1).is_allowed());
}

#[test]
fn nothing_is_leased_however_hot_the_key_is() {
    let scene = Scene::start();
    let (rl, limit) = (scene.instance(), limit(1_000));
    // The first call also sends the script.
    take::<Concurrency>(&rl, "ann", &limit, 1);
    for calls in 2..=200 {
        let before = scene.calls();
        assert_eq!(take::<Concurrency>(&rl, "ann", &limit, 1).remaining(), 1_000 - calls);
        assert_eq!(held::<Concurrency>(&rl, "ann"), 0);
        assert_eq!(scene.calls(), before + 1, "every call asks Redis");
        assert!(rl.hybrid().concurrency().try_take(&key("ann"), &limit, 1).is_none(), "none is decided here");
        scene.clock.advance(SYNC / 50);
    }
}

/// The hybrid limiter of units that are held. It has no leases of its callers' own.
struct OnHybrid {
    scene: Scene,
    rl: RateLimiter,
    receipts: HashMap<String, HybridReceipt>,
}

impl OnHybrid {
    fn start() -> Self {
        let scene = Scene::start();
        let rl = scene.instance();
        Self { scene, rl, receipts: HashMap::new() }
    }
}

fn seen(decision: &Decision) -> Answer {
    let wait = Wait::from(decision.retry_after());
    Answer::new(if decision.is_allowed() { Head::Allowed } else { Head::Denied(wait) })
        .with("left", Value::Count(decision.remaining()))
        .with("limit", Value::Count(decision.limit()))
        .with("wait", Value::Time(wait))
        .with_time("reset", decision.reset_after())
}

impl Provider for OnHybrid {
    fn call(&mut self, call: TimedCall<'_>) -> Result<Answer, Unsupported> {
        let Limit::Concurrency(limit) = &call.limit.limit else {
            return Err(Unsupported("another strategy"));
        };
        self.scene.clock.set(call.now);
        assert_eq!(self.scene.clock.now(), call.now);
        let (units, key) = (self.rl.hybrid().concurrency(), key(call.key));
        Ok(match call.verb {
            Verb::Take(cost) => seen(&wait_for(units.take(&key, limit, *cost)).unwrap()),
            Verb::Peek(cost) => seen(&wait_for(units.peek(&key, limit, *cost)).unwrap()),
            Verb::Usage => seen(&wait_for(units.usage(&key, limit)).unwrap()),
            Verb::UpTo(cost) => {
                let granted = wait_for(units.take_up_to(&key, limit, *cost)).unwrap();
                seen(&granted.decision).headed(Head::Granted(granted.units))
            }
            Verb::Reserve { cost, name, lease: Duration::ZERO } => {
                let reserved = wait_for(units.take_with_receipt(&key, limit, *cost)).unwrap();
                self.receipts.extend(reserved.receipt.map(|receipt| (name.clone(), receipt)));
                seen(&reserved.decision).with_time("stamp", Duration::ZERO)
            }
            Verb::Postpaid(cost) => seen(&wait_for(units.take_postpaid(&key, limit, *cost)).unwrap()),
            Verb::Debit(cost) => seen(&wait_for(units.debit(&key, limit, *cost)).unwrap()),
            Verb::Refund(name) => {
                let refunded = units.refund(&key, limit, &self.receipts[name]);
                Answer::new(Head::Refunded(wait_for(refunded).unwrap()))
            }
            Verb::RefundUnits(number) => {
                Answer::new(Head::Refunded(wait_for(units.refund_units(&key, limit, *number)).unwrap()))
            }
            Verb::Reset => Answer::new(Head::Truth(wait_for(units.reset(&key)).unwrap())),
            _ => return Err(Unsupported("a verb that the hybrid provider does not have")),
        })
    }
}

/// Whether the hybrid provider has every verb of a trace of this strategy.
fn is_playable(trace: &Trace) -> bool {
    trace.lines.iter().all(|line| match &line.what {
        What::Limit(limit) => matches!(limit.limit, Limit::Concurrency(_)),
        What::Step(step) => match &step.verb {
            Verb::Reserve { lease, .. } => lease.is_zero(),
            verb => !matches!(verb, Verb::ReservePostpaid { .. } | Verb::Forget),
        },
    })
}

/// As Redis decides each call, the answers are those of the traces, at every microsecond.
#[test]
fn every_trace_of_its_verbs_is_answered_exactly() {
    let traces = traces::all();
    let ours: Vec<&Trace> =
        traces.iter().filter(|trace| trace.name.starts_with("concurrency") && is_playable(trace)).collect();
    assert!(ours.len() >= 10, "only {} traces of concurrency can be played", ours.len());
    let run = |trace: &&Trace| traces::failures(trace, &mut OnHybrid::start());
    traces::assert_none(&ours.iter().flat_map(run).collect::<Vec<_>>());
}
