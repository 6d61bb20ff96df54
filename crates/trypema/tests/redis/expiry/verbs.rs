//! Every operation of every strategy, in each relevant state: new, used, full, denied, reset. Other tests
//! check the results; here windows may pass at any time.

use std::time::Duration;

use trypema::redis::RedisLimiter;
use trypema::strategy::Leasable;
use trypema::{BlockScope, Check, Limit, RateLimit, RateLimiter};
use trypema_testkit::blocking::{Blocking, key, wait_for};
use trypema_testkit::verbs::{Lease, Verbs};

use crate::strategies::{Limits, Visit, each};

/// The capacity of the limits in [`run`].
pub(crate) const CAPACITY: u64 = 10;

/// Runs every operation, and calls `after` with its name.
pub(crate) fn run(rl: &RateLimiter, window: Duration, mut after: impl FnMut(&str)) {
    let limits = Limits::of(CAPACITY, window);
    each(rl, &limits, &mut EveryVerb { window, after: &mut after });
    compat_calls(rl, &mut after);
    blocks(rl, &limits, (window, &mut after));
    together(rl, &limits, &mut after);
}

struct EveryVerb<'a> {
    window: Duration,
    after: &'a mut dyn FnMut(&str),
}

impl Visit for EveryVerb<'_> {
    fn visit<S: Leasable + Sync>(&mut self, limiter: &RedisLimiter<S>, limit: &S::Limit) {
        let redis = Blocking(limiter);
        let mut did = |verb: &str| (self.after)(&format!("{} {verb}", S::NAME));
        redis.peek("ann", limit, 1);
        redis.take("ann", limit, 0);
        did("looked at a fresh key");
        redis.take("ann", limit, 1);
        did("take");
        assert_eq!(redis.take_up_to("ann", limit, 2).units, 2);
        did("take up to");
        let (_, now) = redis.take_with_receipt_for("ann", limit, Lease { cost: 2, lease: Duration::ZERO });
        did("reserve");
        let (_, later) = redis.take_with_receipt_for("ann", limit, Lease { cost: 2, lease: self.window / 2 });
        did("reserve for a lease");
        redis.refund("ann", limit, now.as_ref().unwrap());
        redis.refund("ann", limit, now.as_ref().unwrap());
        did("refund");
        redis.refund("ann", limit, later.as_ref().unwrap());
        did("refund of a lease");
        redis.refund_units("ann", limit, 1);
        did("refund of units");
        redis.take("ann", limit, CAPACITY * 3);
        did("take of what never fits");
        (0..2 * CAPACITY).for_each(|_| drop(redis.take("ann", limit, 1)));
        did("denials");
        redis.take_with_receipt_for("ann", limit, Lease { cost: CAPACITY, lease: self.window / 2 });
        did("denied reservation");
        redis.reset("ann");
        did("reset");
        redis.take_postpaid("pat", limit, 1);
        redis.take_postpaid_with_receipt("pat", limit, 0);
        redis.debit("pat", limit, 1);
        did("postpaid take and debit");
        redis.reset("ann");
        did("reset of nothing");
        redis.refund("ann", limit, now.as_ref().unwrap());
        did("refund of a void receipt");
        let (_, again) = redis.take_with_receipt_for("ann", limit, Lease { cost: 2, lease: self.window / 2 });
        did("reservation after a reset");
        redis.refund("ann", limit, again.as_ref().unwrap());
        did("refund after a reset");
        let name = key("ann");
        wait_for(limiter.key(&name).take(limit, 1)).unwrap();
        did("take by handle");
        redis.refund_units("bob", limit, 1);
        redis.refund("bob", limit, again.as_ref().unwrap());
        did("refunds to a key never seen");
        redis.take("cid", limit, 1);
        redis.refund_units("cid", limit, 1);
        did("a refund of all there is");
    }
}

/// Calls the operations that only absolute and suppressed have.
fn compat_calls(rl: &RateLimiter, after: &mut dyn FnMut(&str)) {
    let (ann, slow, fast) =
        (key("ann"), RateLimit::try_from(1.0).unwrap(), RateLimit::try_from(2.0).unwrap());
    let (absolute, suppressed) = (rl.redis().absolute(), rl.redis().suppressed());
    for _ in 0..5 {
        wait_for(absolute.inc(&ann, &slow, 1)).unwrap();
        wait_for(suppressed.inc(&ann, &slow, 1)).unwrap();
    }
    after("inc");
    wait_for(absolute.set_rate_limit(&ann, &fast)).unwrap();
    wait_for(suppressed.set_rate_limit(&ann, &fast)).unwrap();
    after("set_rate_limit");
    wait_for(absolute.is_allowed(&ann)).unwrap();
    wait_for(suppressed.is_allowed(&ann)).unwrap();
    assert!(!wait_for(absolute.set_rate_limit(&key("never seen"), &fast)).unwrap());
    after("is_allowed");
}

/// Calls the operations that only abuse has.
fn blocks(rl: &RateLimiter, limits: &Limits, (window, after): (Duration, &mut dyn FnMut(&str))) {
    let (abuse, limit) = (rl.redis().abuse(), &limits.abuse);
    for name in ["ann", "dan"] {
        wait_for(abuse.block(&key(name), window, BlockScope::Long)).unwrap();
        after("block");
        wait_for(abuse.check(&key(name), limit)).unwrap();
        after("check of a blocked key");
    }
    wait_for(abuse.unblock(&key("dan"))).unwrap();
    assert!(!wait_for(abuse.unblock(&key("dan"))).unwrap());
    after("unblock");
}

/// Calls the multi-key operations: once all are taken, once none, and then they are refunded.
fn together(rl: &RateLimiter, limits: &Limits, after: &mut dyn FnMut(&str)) {
    let redis = rl.redis();
    let any: [Limit; 6] = [
        limits.absolute.into(),
        limits.suppressed.into(),
        limits.token_bucket.clone().into(),
        limits.sliding_window.into(),
        limits.abuse.into(),
        limits.fixed_window.into(),
    ];
    for (cost, is_allowed) in [(4, true), (CAPACITY + 1, false)] {
        let mut checks = any.each_ref().map(|limit| Check::new("all", limit, 1));
        checks[5].cost = cost;
        assert_eq!(wait_for(redis.take_all(&checks)).unwrap().is_allowed, is_allowed);
        after("take_all");
        assert_eq!(wait_for(redis.peek_all(&checks)).unwrap().is_allowed, is_allowed);
        after("peek_all");
        let reserved = wait_for(redis.take_all_with_receipts(&checks)).unwrap();
        after("take_all_with_receipts");
        wait_for(redis.refund_all(&checks, &reserved.receipts)).unwrap();
        after("refund_all");
    }
}
