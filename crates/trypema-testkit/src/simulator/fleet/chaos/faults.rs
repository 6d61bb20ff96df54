//! Faults of random fleets.

use super::Frame;
use crate::random::Random;
use crate::simulator::fleet::{Fault, ScheduledFault};

/// Returns some faults, in no order. In half of all fleets the store never loses data, so the invariant holds
/// without exceptions.
pub(super) fn drawn(frame: Frame, random: &mut Random) -> Vec<ScheduledFault> {
    let mut faults = Vec::new();
    for _ in 0..random.pick(&[0, 1, 3, 6]) {
        faults
            .push(ScheduledFault { after_us: random.below(frame.length_us), fault: harmless(frame, random) });
    }
    if random.once_in(2) {
        for _ in 0..random.between(1, 3) {
            faults.push(ScheduledFault {
                after_us: random.below(frame.length_us),
                fault: forgetting(frame, random),
            });
        }
    }
    if random.once_in(4) {
        change_limit(frame, random, &mut faults);
    }
    faults
}

fn harmless(frame: Frame, random: &mut Random) -> Fault {
    let instance = random.below(u64::from(frame.instances)) as u32;
    let for_us = random.pick(&[1, frame.interval_us(), 10 * frame.interval_us(), 2_000_000]);
    match random.below(3) {
        0 => Fault::Freeze { for_us },
        1 => Fault::Kill { instance, for_us },
        _ => Fault::Stop { instance, for_us },
    }
}

fn forgetting(frame: Frame, random: &mut Random) -> Fault {
    match random.below(3) {
        0 => Fault::FlushAll,
        1 => Fault::Failover { lost_us: random.pick(&[1_000, 100_000, 1_000_000, frame.window_us / 2]) },
        _ => Fault::Reset {
            instance: random.below(u64::from(frame.instances)) as u32,
            key: random.below(u64::from(frame.keys)) as u32,
        },
    }
}

/// Changes all instances to the other limit, each a little later than the one before, and sometimes back
/// again.
fn change_limit(frame: Frame, random: &mut Random, faults: &mut Vec<ScheduledFault>) {
    let mut after_us = random.below(frame.length_us);
    let step_us = random.pick(&[0, 1_000, frame.interval_us(), frame.window_us / 10]);
    for limit in [1, 0] {
        for instance in 0..frame.instances {
            faults.push(ScheduledFault { after_us, fault: Fault::ChangeLimit { instance, limit } });
            after_us += step_us;
        }
        if random.once_in(2) {
            return;
        }
        after_us += random.below(frame.window_us);
    }
}
