//! Settling reservations whose holder is gone.

use std::sync::Arc;
use std::time::Duration;

use super::ending::{Report, Spawner};
use crate::clock::Timestamp;
use crate::rules::engine::Engine;
use crate::rules::reservation::{FinalCosts, Outstanding, SettleCosts, SettledStatus};
use crate::waiting::Sleep;

/// The pause after the first failure. A restart of Redis takes about this long.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// The longest pause: short compared with the `hold` of most rules.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A reservation that is to be settled, and whose holder does not wait for that.
#[derive(Debug)]
pub(in crate::rules) struct EndedReservation {
    pub(in crate::rules) outstanding: Outstanding,
    pub(in crate::rules) costs: FinalCosts,
    /// The latest time at which it may expire.
    pub(in crate::rules) expires_at: Timestamp,
}

impl Engine {
    /// Settles a reservation whose holder is gone: at once if the counters are in this process, otherwise in a
    /// task. Outside of an async runtime, the reservation stays outstanding until it expires.
    ///
    /// Tasks do not pile up while the store fails: there is at most one for each reservation that was outstanding
    /// when it failed, because no reservation is made meanwhile, and each ends when its reservation expires.
    pub(in crate::rules) fn settle_in_background(
        self: &Arc<Self>,
        ended: EndedReservation,
        spawner: &Spawner,
    ) {
        let engine = Arc::clone(self);
        self.run_counted(spawner, async move { engine.settle_until_expiry(ended).await });
    }

    /// Runs a task for which [`wait_for_settlements`](Self::wait_for_settlements) waits.
    pub(super) fn run_counted(&self, spawner: &Spawner, task: impl Future<Output = ()> + Send + 'static) {
        if matches!(spawner, Spawner::Caller) {
            return spawner.run(task);
        }
        let running = self.settlements.begin();
        spawner.run(async move {
            let _running = running;
            task.await;
        });
    }

    /// Settles a reservation, and tries again at the counters that failed until it expires: settling twice
    /// changes nothing. The observer hears of each failure.
    async fn settle_until_expiry(&self, ended: EndedReservation) {
        let EndedReservation { mut outstanding, costs, expires_at } = ended;
        let units: Vec<(&str, u64)> = match &costs {
            FinalCosts::Units(units) => units.iter().map(|(unit, cost)| (&**unit, *cost)).collect(),
            FinalCosts::Estimate | FinalCosts::Nothing => Vec::new(),
        };
        let costs = match costs {
            FinalCosts::Estimate => SettleCosts::Estimate,
            FinalCosts::Nothing => SettleCosts::Nothing,
            FinalCosts::Units(_) => SettleCosts::Units(&units),
        };
        let mut longest = FIRST_PAUSE;
        loop {
            let settled = self.settle_counters(&outstanding, costs, Report::Observer).await;
            let mut settled = settled.into_iter().map(|counter| counter.status);
            let is_failed = |status| matches!(status, Some(SettledStatus::Failed(_)));
            outstanding.counters.retain(|_| is_failed(settled.next()));
            if outstanding.counters.is_empty() {
                return;
            }
            let now = self.clock().now();
            let pause = pause_before_retry(longest, now, expires_at);
            if now + pause >= expires_at {
                return;
            }
            Sleep::until(self.clock(), now + pause).await;
            longest = (longest * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits until no settlement runs in the background. Call it when the last response has ended and before
    /// the async runtime shuts down, because a task that the runtime drops settles nothing: slots stay taken
    /// until the `hold` of their rule, and unspent units are not refunded.
    ///
    /// In the background run the settlements of reservations that were dropped, and of responses that have ended
    /// behind a layer that reserves. While the store is unreachable, they are tried again until the reservation
    /// expires, which may take an hour: use a timeout. Dropping the returned future does not stop them. What a
    /// call of [`reserve`](Self::reserve) that was cancelled or failed may have reserved is undone in the background,
    /// too.
    ///
    /// Settlements that begin meanwhile can prolong the wait. Counters in this process never wait: for them,
    /// this returns at once.
    pub async fn wait_for_settlements(&self) {
        self.settlements.none().await;
    }
}

/// Returns the pause before the next try: between half of `longest` and all of it, so that the reservations of
/// many processes are not settled at the same moment. Before the expiry, the tries become more frequent:
/// after it, costs above the estimate can no longer be counted.
fn pause_before_retry(longest: Duration, now: Timestamp, expires_at: Timestamp) -> Duration {
    let left = Duration::from_micros(expires_at.as_micros().saturating_sub(now.as_micros()));
    let longest = longest.min(left / 2).max(FIRST_PAUSE);
    longest / 2 + crate::jitter::below(longest / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries at the longest and the shortest pauses, of a reservation that lasts for half a minute.
    #[test]
    fn pauses_grow_and_the_last_tries_are_shortly_before_the_expiry() {
        for _ in 0..100 {
            let start = Timestamp::from_micros(1_000_000);
            let (mut now, expires_at) = (start, start + Duration::from_secs(30));
            let mut longest = FIRST_PAUSE;
            let mut tries = Vec::new();
            loop {
                let pause = pause_before_retry(longest, now, expires_at);
                assert!((FIRST_PAUSE / 2..=LONGEST_PAUSE).contains(&pause), "{pause:?}");
                if now + pause >= expires_at {
                    break;
                }
                now = now + pause;
                tries.push(now);
                longest = (longest * 2).min(LONGEST_PAUSE);
            }
            assert!((8..=20).contains(&tries.len()), "{tries:?}");
            let gap = |pair: &[Timestamp]| pair[1].as_micros() - pair[0].as_micros();
            assert!(tries.windows(2).all(|pair| gap(pair) <= 10_000_000), "{tries:?}");
            assert!(tries.last().is_some_and(|last| *last + FIRST_PAUSE >= expires_at), "{tries:?}");
        }
    }
}
