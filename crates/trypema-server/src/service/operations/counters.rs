//! Operations on single counters, for operators.

use std::time::Duration;

use trypema::rules::{Holder, Verdict};

use crate::app::App;
use crate::refusal::{Permission, Refusal};
use crate::service::Operation;

/// Shows a counter.
#[derive(Debug)]
pub(crate) struct Inspect<'k>(pub(crate) &'k str);

/// The state of a counter.
#[derive(Debug)]
pub(crate) struct Counter {
    /// The decision of its rule about a request that costs nothing.
    pub(crate) verdict: Verdict,
    /// The time until a unit is left and the key is not blocked; `None` if that never is.
    pub(crate) retry_after: Option<Duration>,
    /// The reservations that it holds; `None` if the store could not be asked.
    pub(crate) holders: Option<Vec<Holder>>,
}

impl Operation for Inspect<'_> {
    type Answer = Counter;

    const PERMISSION: Permission = Permission::Read;

    async fn run(self, app: &App) -> Result<Counter, Refusal> {
        let (key, engine) = (self.0, app.engine());
        let verdict = engine.inspect(key, 0).await?.ok_or(Refusal::UnknownKey)?;
        let decision = verdict.rules().next().ok_or(Refusal::UnknownKey)?.decision;
        // A key that is not blocked but exhausted has a wait, too. An abuse rule has waits only while it
        // blocks.
        let is_exhausted =
            decision.is_allowed() && decision.remaining() == 0 && decision.attempts().is_none();
        let retry_after = match is_exhausted {
            true => {
                let next_unit = engine.inspect(key, 1).await?.ok_or(Refusal::UnknownKey)?;
                next_unit.rules().next().and_then(|rule| rule.decision.retry_after())
            }
            false => decision.retry_after(),
        };
        let holders = match engine.holders(key).await {
            Ok(holders) => Some(holders.unwrap_or_default()),
            Err(error) if error.is_store_failure() => None,
            Err(error) => return Err(error.into()),
        };
        Ok(Counter { verdict, retry_after, holders })
    }
}

/// Resets a counter.
#[derive(Debug)]
pub(crate) struct Reset<'k>(pub(crate) &'k str);

impl Operation for Reset<'_> {
    /// Whether the counter held any state.
    type Answer = bool;

    const PERMISSION: Permission = Permission::Change;

    async fn run(self, app: &App) -> Result<bool, Refusal> {
        app.engine().reset(self.0).await?.ok_or(Refusal::UnknownKey)
    }
}

/// Releases one reservation at one counter. It stays as it is at its other counters.
#[derive(Debug)]
pub(crate) struct ReleaseHolder<'k> {
    pub(crate) key: &'k str,
    pub(crate) id: &'k str,
}

impl Operation for ReleaseHolder<'_> {
    /// Whether the counter held the reservation.
    type Answer = bool;

    const PERMISSION: Permission = Permission::Change;

    async fn run(self, app: &App) -> Result<bool, Refusal> {
        app.engine().release_holder(self.key, self.id).await?.ok_or(Refusal::UnknownKey)
    }
}
