//! Removing stale state changes no decision.

use trypema_testkit::differential::{Changes, Walk};
use trypema_testkit::random::Random;
use trypema_testkit::subject::{LocalStrategy, LocalSubject, Subject};

use super::for_every_strategy;

const TRACES: u64 = 500;

fn forgetting_is_lossless<M: LocalStrategy>() {
    for seed in 0..TRACES {
        let mut random = Random::seeded(seed);
        let mut keeping = LocalSubject::<M>::default();
        let mut forgetting = LocalSubject::<M>::default();
        let mut walk = Walk::<M>::changing(seed, Changes::Forgetting);
        while let Some(step) = walk.next_step() {
            let expected = step.play(&mut keeping);
            if random.once_in(2) {
                forgetting.set_clock(step.now_us);
                forgetting.forget_stale();
            }
            let actual = step.play(&mut forgetting);
            assert_eq!(actual, expected, "seed {seed}: forgetting changed {step}");
            walk.note(&step, &expected);
        }
    }
}

for_every_strategy!(forgetting_is_lossless);
