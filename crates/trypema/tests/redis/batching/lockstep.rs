//! Two providers on one clock that receive the same calls must return the same results, step by step.

use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::{Decision, Limit, MultiDecision, TokenBucketLimits, TokenLimit};
use trypema_testkit::random::Random;

use crate::all_or_nothing::asked::{Asked, View, six};
use crate::all_or_nothing::provider::Provider;

/// The seed and the length of a random walk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walk {
    pub(crate) seed: u64,
    pub(crate) steps: u64,
}

/// The events of a walk. A walk in which one of them never occurs proves nothing about it.
#[derive(Debug, Default)]
struct Met {
    admitted: u64,
    forgone_by_suppressed: u64,
    vetoed_abuse: u64,
    blocked_by_abuse: u64,
    drawn: u64,
    refunded: u64,
    overdrawn: u64,
}

/// Reservations on both providers, to be refunded later.
struct Held<A: Provider, B: Provider> {
    asked: Vec<Asked>,
    one: Vec<Option<A::Receipt>>,
    other: Vec<Option<B::Receipt>>,
}

/// Two limits of each strategy, because a key's limit may change from call to call. Both have the same
/// window: a state that has expired under a shorter one may be gone on one provider and still exist on the
/// other.
pub(crate) fn limits() -> Vec<[Limit; 2]> {
    let bucket = |capacity, seconds| TokenLimit::new(capacity, Duration::from_secs(seconds)).unwrap();
    let (slow, mut fast) = (six(20, Duration::from_secs(60), 2.0), six(7, Duration::from_secs(60), 1.5));
    fast[2] = TokenBucketLimits::new([bucket(7, 1), bucket(30, 60)]).unwrap().into();
    slow.into_iter().zip(fast).map(|(slow, fast)| [slow, fast]).collect()
}

/// One to six checks with distinct states.
pub(crate) fn request(keys: &[String], limits: &[[Limit; 2]], random: &mut Random) -> Vec<Asked> {
    let mut asked: Vec<Asked> = Vec::new();
    for _ in 0..random.between(1, 6) {
        let key = &keys[random.below(keys.len() as u64) as usize];
        let limit = &limits[random.below(6) as usize][usize::from(random.once_in(5))];
        let next = Asked::new(key, limit, random.pick(&[0, 1, 1, 1, 1, 2, 3, 7, 10, 25]));
        let next = if random.once_in(5) { next.postpaid() } else { next };
        let is_same =
            |other: &Asked| other.key == next.key && other.limit.strategy() == next.limit.strategy();
        if !asked.iter().any(is_same) {
            asked.push(next);
        }
    }
    asked
}

/// Moves the clock forward, never back: an expired state may be gone on one provider and still exist on the
/// other.
fn move_on(clock: &ManualClock, random: &mut Random) {
    match random.below(40) {
        0 => clock.advance(Duration::from_secs(random.below(100))),
        1..20 => clock.advance(Duration::from_micros(random.below(1_000_000))),
        _ => {}
    }
}

/// Makes the same calls on both providers.
pub(crate) fn walk<A: Provider, B: Provider>(
    (one, other): (&A, &B),
    clock: &ManualClock,
    keys: &[String],
    walk: Walk,
) {
    let (limits, mut random) = (limits(), Random::seeded(walk.seed));
    let (mut held, mut met) = (Vec::new(), Met::default());
    for step in 0..walk.steps {
        move_on(clock, &mut random);
        let mut asked = request(keys, &limits, &mut random);
        let at = |asked: &[Asked]| format!("seed {}, step {step}: {asked:?}", walk.seed);
        match random.below(10) {
            0 => {
                let (one, other) = (one.peek_all(&asked).unwrap(), other.peek_all(&asked).unwrap());
                assert_same::<A, B>(&one, &other, &at(&asked));
            }
            1 | 2 if !held.is_empty() => {
                let back: &Held<A, B> = &held[random.below(held.len() as u64) as usize];
                one.refund_all(&back.asked, &back.one);
                other.refund_all(&back.asked, &back.other);
                asked.clone_from(&back.asked);
                met.refunded += 1;
            }
            3..6 => {
                let (one, other) = (
                    one.take_all_with_receipts(&asked).unwrap(),
                    other.take_all_with_receipts(&asked).unwrap(),
                );
                assert_same::<A, B>(&one, &other, &at(&asked));
                met.add(&asked, &one);
                held.push(Held { asked: asked.clone(), one: one.receipts, other: other.receipts });
            }
            _ => {
                let (one, other) = (one.take_all(&asked).unwrap(), other.take_all(&asked).unwrap());
                assert_same::<A, B>(&one, &other, &at(&asked));
                met.add(&asked, &one);
            }
        }
        let after: Vec<Asked> = asked.iter().map(|asked| asked.costing(0)).collect();
        let (usage, other_usage) = (one.peek_all(&after).unwrap(), other.peek_all(&after).unwrap());
        assert_same::<A, B>(&usage, &other_usage, &at(&asked));
        // Observed units show in the suppression factor, between the soft and the hard limit.
        for (asked, usage) in asked.iter().zip(&usage.decisions).filter(|(asked, _)| asked.is_suppressed()) {
            let drawn = asked.costing(usage.remaining() + 1);
            assert_eq!(one.factor(&drawn), other.factor(&drawn), "{}", at(std::slice::from_ref(&drawn)));
            met.drawn += u64::from(one.factor(&drawn).is_some());
        }
        held.drain(..held.len().saturating_sub(20));
    }
    println!("{met:?}");
    met.assert_everything();
}

/// Compares every field and the units of every receipt.
fn assert_same<A: Provider, B: Provider>(
    one: &MultiDecision<A::Receipt>,
    other: &MultiDecision<B::Receipt>,
    at: &str,
) {
    assert_eq!(one.is_allowed, other.is_allowed, "{at}");
    let view = |decisions: &[Decision]| decisions.iter().map(View::of).collect::<Vec<_>>();
    assert_eq!(view(&one.decisions), view(&other.decisions), "{at}");
    let units = |receipt: &Option<A::Receipt>| receipt.as_ref().map(A::units);
    let other_units = |receipt: &Option<B::Receipt>| receipt.as_ref().map(B::units);
    let one: Vec<_> = one.receipts.iter().map(units).collect();
    let other: Vec<_> = other.receipts.iter().map(other_units).collect();
    assert_eq!(one, other, "{at}");
}

impl Met {
    fn add<R>(&mut self, asked: &[Asked], answer: &MultiDecision<R>) {
        self.admitted += u64::from(answer.is_allowed && asked.len() > 1);
        for (asked, decision) in asked.iter().zip(&answer.decisions) {
            self.overdrawn +=
                u64::from(answer.is_allowed && asked.is_postpaid && asked.cost > decision.limit());
            let is_vetoed = decision.is_allowed() && !answer.is_allowed && asked.cost > 0;
            match asked.limit {
                Limit::Suppressed(_) => self.forgone_by_suppressed += u64::from(is_vetoed),
                Limit::Abuse(_) => {
                    self.vetoed_abuse += u64::from(is_vetoed);
                    self.blocked_by_abuse += u64::from(!decision.is_allowed());
                }
                _ => {}
            }
        }
    }

    fn assert_everything(&self) {
        let Self { admitted, forgone_by_suppressed, vetoed_abuse, blocked_by_abuse, .. } = *self;
        let Self { drawn, refunded, overdrawn, .. } = *self;
        let met =
            [admitted, forgone_by_suppressed, vetoed_abuse, blocked_by_abuse, drawn, refunded, overdrawn];
        assert!(met.iter().all(|times| *times > 0), "{self:?}");
    }
}
