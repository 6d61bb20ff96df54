//! `Retry-After`: whole seconds, rounded up, at least one, and only if waiting helps.

use std::time::Duration;

use http::HeaderMap;
use proptest::prelude::*;
use trypema::http::{retry_after_seconds, whole_seconds, write_retry_after};

use super::{allowed, denied, never, rounded_up, waits};

#[test]
fn rounds_up_and_is_at_least_one() {
    for (wait_us, seconds) in [(1, 1), (999_999, 1), (1_000_000, 1), (1_000_001, 2), (2_000_000, 2)] {
        let wait = Duration::from_micros(wait_us);
        assert_eq!(retry_after_seconds(&denied(wait)), Some(seconds), "{wait:?}");
        assert_eq!(whole_seconds(wait), seconds, "{wait:?}");
    }
    assert_eq!(whole_seconds(Duration::ZERO), 1);
    assert_eq!(whole_seconds(Duration::from_nanos(1_000_000_001)), 2);
    assert_eq!(whole_seconds(Duration::MAX), u64::MAX);
}

#[test]
fn is_absent_where_waiting_does_not_help() {
    assert!(never().is_never());
    assert_eq!(retry_after_seconds(&never()), None);
    assert_eq!(retry_after_seconds(&allowed(1, 0, Duration::from_secs(60))), None);
}

#[test]
fn replaces_what_is_there() {
    let mut headers = HeaderMap::new();
    write_retry_after(7, &mut headers);
    write_retry_after(u64::MAX, &mut headers);
    assert_eq!(headers.get_all("retry-after").iter().collect::<Vec<_>>(), ["18446744073709551615"]);
}

proptest! {
    /// `Retry-After` is long enough, and one second less would be too short.
    #[test]
    fn is_the_first_second_that_is_late_enough(wait in waits()) {
        let seconds = retry_after_seconds(&denied(wait)).unwrap();
        prop_assert_eq!(seconds, rounded_up(wait).max(1));
        prop_assert!(Duration::from_secs(seconds) >= wait);
        prop_assert!(seconds == 1 || Duration::from_secs(seconds - 1) < wait);
    }
}
