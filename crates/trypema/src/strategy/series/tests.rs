use super::*;

const WINDOW_US: u64 = 10_000_000;
const GROUP_US: u64 = 10_000;

fn look(now: u64) -> Look {
    Look { now, window_us: WINDOW_US }
}

fn record(series: &mut Series, now: u64, units: u64) {
    let view = series.view(look(now));
    series.record(look(now), view, Record { stamp: now, group_us: GROUP_US, units, is_late: false });
}

#[test]
fn buckets_are_bounded_and_forgotten() {
    let mut series = Series::default();
    for step in 0..100_000 {
        record(&mut series, step * GROUP_US, 1);
        assert!(series.buckets() as u64 <= WINDOW_US / GROUP_US + 1);
    }
    let end = 99_999 * GROUP_US;
    assert_eq!(series.view(look(end)).used, WINDOW_US / GROUP_US);
    assert_eq!(series.view(look(end + WINDOW_US)).used, 0);
}

#[test]
fn counts_beyond_32_bits_are_exact() {
    let mut series = Series::default();
    let huge = u64::from(u32::MAX);
    for step in 0..5 {
        record(&mut series, step * GROUP_US, huge - step);
    }
    let at = |now| series.view(look(now)).used;
    assert_eq!(at(5 * GROUP_US), 5 * huge - 10);
    assert_eq!(at(WINDOW_US), 4 * huge - 10);
    assert_eq!(at(WINDOW_US + 3 * GROUP_US), huge - 4);
}

#[test]
fn times_beyond_32_bits_are_exact() {
    let day_us = 86_400_000_000;
    let look = |now| Look { now, window_us: day_us };
    let mut series = Series::default();
    for hour in 0..24 {
        let now = 1_000_000_000_000 + hour * 3_600_000_000;
        let view = series.view(look(now));
        series.record(
            look(now),
            view,
            Record { stamp: now, group_us: 1_000_000, units: 1 + hour, is_late: false },
        );
    }
    let used = |now| series.view(look(1_000_000_000_000 + now)).used;
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
    assert_eq!(series.view(look(WINDOW_US)).used, 20);
    assert_eq!(series.refund_oldest(15), 15);
    assert_eq!(series.view(look(4 * GROUP_US)).used, 15);
    assert_eq!(series.total(), 15);
}

#[test]
fn the_newest_are_kept() {
    let mut series = Series::default();
    for step in 0..4 {
        record(&mut series, step * GROUP_US, 10);
    }
    series.keep_newest(15);
    assert_eq!(series.view(look(4 * GROUP_US)).used, 15);
    assert_eq!(series.view(look(WINDOW_US + 2 * GROUP_US)).used, 10);
    series.keep_newest(3);
    assert_eq!((series.total(), series.buckets()), (3, 1));
}

#[test]
fn horizons_round_up_by_little() {
    for micros in [1, 15, 31, 32, 33, 1_000, 65_535, 60_000_000, 31_622_400_000_000] {
        let rounded = Horizon::at_least(micros).micros();
        assert!(rounded >= micros && rounded <= micros + micros / 16, "{micros} became {rounded}");
        assert!(u32::from(Horizon::at_least(micros).bits()) < 1 << 11);
    }
}

#[test]
fn late_stamps_are_corrected_and_others_are_not() {
    let late = |now, stamp, is_late| {
        let mut series = Series::default();
        record(&mut series, 1_000, 1);
        let view = series.view(look(now));
        series.record(look(now), view, Record { stamp, group_us: GROUP_US, units: 1, is_late });
        series.sharpen(now + 10);
        series.newest()
    };
    assert_eq!(late(50_000, 66_000, true), 50_010);
    assert_eq!(late(5_000, 9_000, true), 5_010);
    assert_eq!(late(50_000, 66_000, false), 66_000);

    // A lease that counts later stays where it is, whatever joins it.
    let mut series = Series::default();
    for (now, stamp, is_late) in [(1_000, 30_000, false), (2_000, 8_000, true)] {
        let view = series.view(look(now));
        series.record(look(now), view, Record { stamp, group_us: GROUP_US, units: 1, is_late });
    }
    series.sharpen(2_500);
    assert_eq!(series.newest(), 30_000);

    // Nothing goes before what is closed.
    let mut series = Series::default();
    for (now, stamp) in [(1_000, 17_000), (12_000, 28_000)] {
        let view = series.view(look(now));
        series.record(look(now), view, Record { stamp, group_us: GROUP_US, units: 1, is_late: true });
    }
    series.sharpen(13_000);
    assert_eq!((series.newest(), series.view(look(13_000)).used), (17_000, 2));
}
