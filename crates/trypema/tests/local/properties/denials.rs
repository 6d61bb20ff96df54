//! A denial changes nothing, its wait is exact (if the strategy has an exact one), and the reported remaining units can be taken.

use trypema_testkit::differential::{Changes, Step, Verb, Walk};
use trypema_testkit::model::{AbuseModel, Model, SuppressedModel};
use trypema_testkit::subject::{Answer, Detail, LocalStrategy, LocalSubject, Subject};

use super::for_every_strategy;

const TRACES: u64 = 300;

/// Plays the trace of every seed. `law` inspects the subject after each step and must not change it.
fn after_every_step<M: LocalStrategy>(law: impl Fn(&mut LocalSubject<M>, &Step<M::Limit>, &Answer, u64)) {
    for seed in 0..TRACES {
        let mut subject = LocalSubject::<M>::default();
        let mut walk = Walk::<M>::new(seed);
        while let Some(step) = walk.next_step() {
            let reply = step.play(&mut subject);
            walk.note(&step, &reply);
            if let Some(answer) = reply.answer() {
                law(&mut subject, &step, answer, seed);
            }
            subject.set_clock(step.now_us);
        }
    }
}

/// Whether a call is allowed without chance: the waits of the suppressed strategy refer to that.
fn passes(answer: &Answer) -> bool {
    answer.is_allowed && !matches!(answer.detail, Detail::Suppressed { factor: Some(_) })
}

fn waits_are_exact<M: LocalStrategy>() {
    after_every_step::<M>(|subject, step, answer, seed| {
        let Verb::Take(cost) = step.verb else { return };
        let Some(wait_us) = answer.wait.micros().filter(|_| !answer.is_allowed) else { return };
        assert!(wait_us > 0, "seed {seed}: {step} is denied without a wait");
        if cost > answer.limit {
            // A cost above the soft limit of the suppressed strategy can only be admitted by chance.
            return;
        }
        if !M::IS_WAIT_EXACT {
            // A denied caller asks again soon, because a holder may release its units at any time. After the
            // wait it may be denied again; but not once everything has expired.
            let soon_us = answer.reset_us.min(1_000_000);
            assert_eq!(wait_us, soon_us, "seed {seed}: {step} waits for {answer:?}");
            subject.set_clock(step.now_us + answer.reset_us);
            let after = subject.peek(step.key, &step.limit, cost);
            assert!(passes(&after), "seed {seed}: {step} is denied although nothing is held: {after:?}");
            return;
        }
        subject.set_clock(step.now_us + wait_us);
        let after = subject.peek(step.key, &step.limit, cost);
        assert!(passes(&after), "seed {seed}: {step} waited {wait_us} µs in vain: {after:?}");
        subject.set_clock(step.now_us + wait_us - 1);
        let before = subject.peek(step.key, &step.limit, cost);
        assert!(!passes(&before), "seed {seed}: {step} passes before {wait_us} µs: {before:?}");
    });
}

for_every_strategy!(waits_are_exact);

fn what_remains_passes<M: LocalStrategy>() {
    after_every_step::<M>(|subject, step, _, seed| {
        let usage = subject.peek(step.key, &step.limit, 0);
        let remaining = usage.remaining;
        assert!(remaining <= usage.limit, "seed {seed}: after {step}: {usage:?}");
        if remaining > 0 {
            let all = subject.peek(step.key, &step.limit, remaining);
            assert!(passes(&all), "seed {seed}: after {step}: {remaining} remain but {all:?}");
        }
        let more = subject.peek(step.key, &step.limit, remaining + 1);
        assert!(!passes(&more), "seed {seed}: after {step}: {remaining} remain but one more passes");
    });
}

for_every_strategy!(what_remains_passes);

/// Peeks at a key at several times, with several costs.
fn portrait<M: LocalStrategy>(subject: &mut LocalSubject<M>, step: &Step<M::Limit>) -> Vec<Answer> {
    let capacity = M::capacity(&step.limit);
    // The suppressed strategy observes denials, so its decisions by chance may change. Only the accepted
    // units must not.
    let costs: &[u64] = if M::NAME == SuppressedModel::NAME { &[0] } else { &[0, 1, capacity] };
    let moments = [0].into_iter().chain(M::spans_us(&step.limit)).map(|span| step.now_us + span / 2);
    let mut answers = Vec::new();
    for moment in moments {
        subject.set_clock(moment);
        answers.extend(costs.iter().map(|cost| subject.peek(step.key, &step.limit, *cost)));
    }
    subject.set_clock(step.now_us);
    answers
}

fn denials_change_nothing<M: LocalStrategy>() {
    if M::NAME == AbuseModel::NAME {
        // The abuse strategy counts denied attempts.
        return;
    }
    for seed in 0..TRACES {
        let mut subject = LocalSubject::<M>::default();
        // Without clock steps and limit changes: after a clock step, a denial writes the corrected state, and
        // a much shorter window looks like a clock step.
        let mut walk = Walk::<M>::changing(seed, Changes::Forgetting);
        while let Some(step) = walk.next_step() {
            subject.set_clock(step.now_us);
            let before = portrait(&mut subject, &step);
            let reply = step.play(&mut subject);
            walk.note(&step, &reply);
            let is_denied = reply.answer().is_some_and(|answer| !answer.is_allowed);
            if is_denied {
                let after = portrait(&mut subject, &step);
                let changed = before.iter().zip(&after).find(|(before, after)| before != after);
                assert_eq!(changed, None, "seed {seed}: {step} was denied and changed something");
            }
        }
    }
}

for_every_strategy!(denials_change_nothing);
