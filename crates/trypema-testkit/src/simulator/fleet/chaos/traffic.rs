//! Traffic of random fleets: volleys, each for one key, to one instance or to all of them.

use super::Frame;
use crate::random::Random;
use crate::simulator::fleet::Offer;

/// Returns about `calls` calls within the frame, in order.
pub(super) fn drawn(frame: Frame, calls: u64, random: &mut Random) -> Vec<Offer> {
    let mut offers = Vec::new();
    let dearest = random.pick(&[1, 1, 2, 5]);
    while (offers.len() as u64) < calls {
        let size = random.pick(&[1, 5, 20, 100]);
        volley(frame, [size, dearest], random, &mut offers);
    }
    offers.sort_by_key(|offer| offer.after_us);
    offers
}

fn volley(frame: Frame, [size, dearest]: [u64; 2], random: &mut Random, offers: &mut Vec<Offer>) {
    let interval_us = frame.interval_us();
    let spread_us = random.pick(&[1, interval_us / 2, 3 * interval_us, 20 * interval_us, frame.window_us]);
    let starts_us = moment(frame, random);
    let favourite = random.below(u64::from(frame.instances)) as u32;
    // The number of calls out of ten that go to the favourite instance.
    let favoured = random.pick(&[0, 9, 10]);
    let key = key(frame, random);
    for _ in 0..size {
        let instance = match random.below(10) < favoured {
            true => favourite,
            false => random.below(u64::from(frame.instances)) as u32,
        };
        let after_us = starts_us + random.below(spread_us.max(1));
        offers.push(Offer { after_us, instance, key, cost: random.between(1, dearest) });
    }
}

/// Returns a time at which errors are likely: any time, or near the end of a window.
fn moment(frame: Frame, random: &mut Random) -> u64 {
    let anywhere = random.below(frame.length_us);
    let (window_us, interval_us) = (frame.window_us, frame.interval_us());
    match random.below(4) {
        0 => anywhere,
        // A multiple of the window after the start, so that volleys repeat after a window.
        1 => anywhere / window_us * window_us,
        2 => anywhere / interval_us * interval_us,
        // Shortly before the end of a window that is aligned to the epoch.
        _ => {
            let ends_us = (frame.start_us + anywhere).next_multiple_of(window_us) - frame.start_us;
            ends_us.saturating_sub(random.below(3 * interval_us))
        }
    }
}

/// Returns a key. The first key is called most, the next half as often, and so on.
fn key(frame: Frame, random: &mut Random) -> u32 {
    (0..frame.keys - 1).find(|_| random.once_in(2)).unwrap_or(frame.keys - 1)
}
