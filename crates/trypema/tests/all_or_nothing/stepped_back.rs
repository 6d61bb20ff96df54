//! A clock that ran far ahead and is then corrected: keys are not locked out until the clock reaches the old
//! time again.

use std::time::Duration;

use trypema::clock::{Clock, ManualClock, Timestamp};

use super::asked::{Asked, six};
use super::provider::Provider;

const CAPACITY: u64 = 10;
const WINDOW: Duration = Duration::from_secs(60);
const YEAR_US: u64 = 365 * 86_400 * 1_000_000;

/// Units that were spent in the future count as spent now, so each key recovers after a window.
pub(crate) fn keys_come_back_after_a_window(
    provider: &impl Provider,
    clock: &ManualClock,
    keys: &[String; 5],
) {
    for limit in six(CAPACITY, WINDOW, 1.0) {
        let asked: Vec<Asked> = keys.iter().map(|key| Asked::new(key, &limit, CAPACITY)).collect();
        assert!(provider.take_all(&asked).unwrap().is_allowed);
        clock.set(Timestamp::from_micros(clock.now().as_micros() - YEAR_US));
        assert!(!provider.take_all(&asked).unwrap().is_allowed, "{} forgot what was spent", limit.strategy());
        // A sliding window also counts the previous window, so two must pass.
        clock.advance(2 * WINDOW + Duration::from_secs(1));
        let again = provider.take_all(&asked).unwrap();
        assert!(again.is_allowed, "{} is locked out: {again:?}", limit.strategy());
        clock.advance(Duration::from_micros(YEAR_US));
    }
}
