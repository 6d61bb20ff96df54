use super::*;

const WINDOW_US: u64 = 10_000_000;
const GROUP_US: u64 = 10_000;

fn window_at(now: u64) -> WindowAt {
    WindowAt { now, window_us: WINDOW_US }
}

fn record(series: &mut Series, now: u64, units: u64) {
    let view = series.view(window_at(now));
    series.record(window_at(now), view, NewUnits { stamp: now, group_us: GROUP_US, units });
}

#[test]
fn buckets_are_bounded_and_forgotten() {
    let mut series = Series::default();
    for step in 0..100_000 {
        record(&mut series, step * GROUP_US, 1);
        assert!(series.buckets() as u64 <= WINDOW_US / GROUP_US + 1);
    }
    let end = 99_999 * GROUP_US;
    assert_eq!(series.view(window_at(end)).used, WINDOW_US / GROUP_US);
    assert_eq!(series.view(window_at(end + WINDOW_US)).used, 0);
}

#[test]
fn counts_beyond_32_bits_are_exact() {
    let mut series = Series::default();
    let huge = u64::from(u32::MAX);
    for step in 0..5 {
        record(&mut series, step * GROUP_US, huge - step);
    }
    let at = |now| series.view(window_at(now)).used;
    assert_eq!(at(5 * GROUP_US), 5 * huge - 10);
    assert_eq!(at(WINDOW_US), 4 * huge - 10);
    assert_eq!(at(WINDOW_US + 3 * GROUP_US), huge - 4);
}

#[test]
fn times_beyond_32_bits_are_exact() {
    let day_us = 86_400_000_000;
    let window_at = |now| WindowAt { now, window_us: day_us };
    let mut series = Series::default();
    for hour in 0..24 {
        let now = 1_000_000_000_000 + hour * 3_600_000_000;
        let view = series.view(window_at(now));
        series.record(window_at(now), view, NewUnits { stamp: now, group_us: 1_000_000, units: 1 + hour });
    }
    let used = |now| series.view(window_at(1_000_000_000_000 + now)).used;
    assert_eq!(used(day_us - 1), 300);
    assert_eq!(used(day_us), 299);
    assert_eq!(used(day_us + 3_600_000_000 - 1), 299);
    assert_eq!(used(day_us + 3_600_000_000), 297);
}

#[test]
fn refunds_come_out_of_their_bucket() {
    let mut series = Series::default();
    for step in 0..4 {
        record(&mut series, step * GROUP_US, 10);
    }
    assert_eq!(series.refund_at(GROUP_US, GROUP_US, 4), 4);
    assert_eq!(series.refund_at(GROUP_US, GROUP_US, 40), 6);
    assert_eq!(series.view(window_at(WINDOW_US)).used, 20);
    assert_eq!(series.refund_oldest(15), 15);
    assert_eq!(series.view(window_at(4 * GROUP_US)).used, 15);
    assert_eq!(series.total(), 15);
}

/// Returns a series of three units in each bucket.
fn long_series(buckets: u64) -> Series {
    let mut series = Series::default();
    let window_at = |now| WindowAt { now, window_us: buckets * GROUP_US };
    for step in 0..buckets {
        let now = step * GROUP_US;
        let view = series.view(window_at(now));
        series.record(window_at(now), view, NewUnits { stamp: now, group_us: GROUP_US, units: 3 });
    }
    series
}

/// A refund changes a few hundred words at most, however many buckets follow its bucket.
#[test]
fn a_refund_changes_few_words_of_a_long_series() {
    for buckets in [8_192, 65_536] {
        let mut series = long_series(buckets);
        for index in [0, 1, 255, 256, 257, 4_000, buckets as usize - 2] {
            let words = series.ring.subtract(index, 1);
            assert!(words <= 3 * 256 + buckets as usize / 256, "{words} words at {index} of {buckets}");
        }
    }
}

/// The same series as a plain list of buckets, for comparison.
#[derive(Default)]
struct ListedUnits(Vec<(u64, u64)>);

impl ListedUnits {
    fn record(&mut self, now: u64, units: u64) {
        self.0.retain(|(at, _)| at + WINDOW_US > now);
        match self.0.last_mut() {
            Some((at, counted)) if *at == now && *counted > 0 => *counted += units,
            _ => self.0.push((now, units)),
        }
    }

    fn refund(&mut self, units: u64, is_meant: impl Fn(u64) -> bool) -> u64 {
        let mut left = units;
        for (_, counted) in self.0.iter_mut().filter(|(at, _)| is_meant(*at)) {
            let back = left.min(*counted);
            (*counted, left) = (*counted - back, left - back);
        }
        units - left
    }

    fn used(&self, now: u64) -> u64 {
        self.0.iter().filter(|(at, _)| at + WINDOW_US > now).map(|(_, units)| units).sum()
    }
}

/// Refunds of both kinds between calls, in rings that grow, wrap around, shrink and become wide.
#[test]
fn refunds_equal_those_of_a_list() {
    let mut random = 1_u64;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for most in [5, u64::from(u32::MAX)] {
        let (mut series, mut listed, mut now) = (Series::default(), ListedUnits::default(), 0);
        for _ in 0..20_000 {
            now += GROUP_US * (1 + draw(2)) + if draw(4_000) == 0 { WINDOW_US * 3 / 4 } else { 0 };
            let units = 1 + draw(most);
            record(&mut series, now, units);
            listed.record(now, units);
            let (moment, units) = (now - (GROUP_US * draw(1_000)).min(now), 1 + draw(most));
            let view = series.view(window_at(now));
            series.forget_expired(window_at(now), view);
            let refunded = match draw(3) {
                0 => [series.refund_at(moment, 1, units), listed.refund(units, |at| at == moment)],
                1 => [series.refund_oldest(units / 2), listed.refund(units / 2, |_| true)],
                _ => [0, 0],
            };
            assert_eq!(refunded[0], refunded[1], "at {now}");
            let later = now + draw(WINDOW_US + 2);
            assert_eq!(series.view(window_at(later)).used, listed.used(later), "at {now}, seen at {later}");
        }
    }
}

/// A condensed copy counts the same now in the windows that it is made for, and never less later.
#[test]
fn a_condensed_copy_is_small_exact_now_and_never_looser() {
    let (buckets, second_us) = (65_536, 1_000_000);
    let mut series = long_series(buckets);
    series.refund_oldest(5_000);
    series.refund_at(40_000 * GROUP_US, GROUP_US, 2);
    let window_us = buckets * GROUP_US;
    for now in [buckets * GROUP_US, buckets * GROUP_US + window_us / 3] {
        let copy = series.condensed(now, &[window_us, second_us]);
        assert!(copy.buckets() <= 36, "{} buckets", copy.buckets());
        let used = |series: &Series, now, window_us| series.view(WindowAt { now, window_us }).used;
        assert_eq!(used(&copy, now, window_us), used(&series, now, window_us));
        assert_eq!(used(&copy, now, second_us), used(&series, now, second_us));
        for step in 0..100 {
            let later = now + step * window_us / 100;
            let [copied, counted] = [&copy, &series].map(|series| used(series, later, window_us));
            assert!(copied >= counted && copied <= counted + 3 * (buckets / 32 + 1), "{copied}, {counted}");
        }
    }
}

#[test]
fn the_newest_are_kept() {
    let mut series = Series::default();
    for step in 0..4 {
        record(&mut series, step * GROUP_US, 10);
    }
    series.keep_newest(15);
    assert_eq!(series.view(window_at(4 * GROUP_US)).used, 15);
    assert_eq!(series.view(window_at(WINDOW_US + 2 * GROUP_US)).used, 10);
    series.keep_newest(3);
    assert_eq!((series.total(), series.buckets()), (3, 1));
}

#[test]
fn horizons_round_up_by_little() {
    for micros in [1, 15, 31, 32, 33, 1_000, 65_535, 60_000_000, 31_622_400_000_000] {
        let rounded = Horizon::at_least(micros).micros();
        assert!(rounded >= micros && rounded <= micros + micros / 16, "{micros} became {rounded}");
    }
}
