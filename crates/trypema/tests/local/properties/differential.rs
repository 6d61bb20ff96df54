//! The library equals the models in every field of every decision.

use trypema_testkit::differential::local;
use trypema_testkit::subject::LocalStrategy;

use super::for_every_strategy;

const TRACES: u64 = 2_000;

fn equals_its_model<M: LocalStrategy>() {
    for seed in 0..TRACES {
        if let Err(difference) = local::<M>(seed) {
            panic!("{difference}");
        }
    }
}

for_every_strategy!(equals_its_model);
