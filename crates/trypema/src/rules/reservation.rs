//! Reservations: a request takes the units that it may need, and later says how many it really spent.

mod name;
mod reference;
#[cfg(feature = "tower")]
mod renewal;
mod settlement;

use std::sync::Arc;
use std::time::Duration;

use name::name_of;
pub(super) use name::{CounterName, Outstanding};
pub use reference::ReservationRef;
#[cfg(feature = "tower")]
pub(crate) use renewal::RenewingReservation;
pub use settlement::{SettledRule, SettledStatus, Settlement};

use super::engine::{EndedReservation, Engine, Report, Spawner};
use super::request::Request;
use super::verdict::Verdict;
use crate::clock::Timestamp;
use crate::error::TrypemaError;
use crate::reservation::ReservationName;
use crate::strategy::reservations::MAX_HOLD;

/// The longest id that a caller can choose, in bytes.
const MAX_ID_BYTES: usize = 128;

/// The options of a reservation.
///
/// ```
/// use std::time::Duration;
/// use trypema::rules::{OnDrop, ReserveOptions};
///
/// let options = ReserveOptions::new(Duration::from_secs(120))?.with_id("9f1c2a")?.on_drop(OnDrop::Release);
/// # let _ = options;
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone)]
pub struct ReserveOptions {
    pub(super) ttl: Duration,
    id: Option<String>,
    pub(super) on_drop: OnDrop,
    pub(super) patience: Duration,
}

/// The effect of dropping a [`Reservation`] that was neither settled nor released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDrop {
    /// The estimate counts as spent, and slots of concurrency rules are released.
    #[default]
    Settle,
    /// Everything is given back, as if the request had never been made.
    Release,
    /// Nothing happens: the estimate stays counted, and slots are held until the reservation expires.
    Keep,
}

impl ReserveOptions {
    /// Returns the options of a reservation that lasts for `ttl`, at most one hour, unless it is renewed.
    /// Concurrency rules shorten it to their `hold`.
    pub fn new(ttl: Duration) -> Result<Self, TrypemaError> {
        valid_ttl(ttl)?;
        Ok(Self { ttl, id: None, on_drop: OnDrop::default(), patience: Duration::ZERO })
    }

    /// Returns the same options with an id that the caller chose, of 1 to 128 bytes. Until the reservation
    /// expires, a request with the same id, attributes and costs returns the same reservation and spends
    /// nothing. A request with the same id and others fails, if it uses one of the same counters.
    ///
    /// If the reservation was settled or released, the repeated request is allowed and holds no slot and no units. So
    /// use a new id for each call, and the same one only to repeat a request whose response was lost.
    ///
    /// A caller that knows the id can settle the reservation. Choose ids that others cannot guess, such as UUIDs.
    pub fn with_id(self, id: impl Into<String>) -> Result<Self, TrypemaError> {
        let id = id.into();
        valid_id(&id)?;
        Ok(Self { id: Some(id), ..self })
    }

    /// Returns the same options with another effect of dropping the reservation.
    #[must_use]
    pub fn on_drop(self, on_drop: OnDrop) -> Self {
        Self { on_drop, ..self }
    }

    /// Returns the same options for a caller that waits up to `patience` while the request is denied. It is
    /// denied at once if it is blocked, if its cost can never fit, or if a rule other than concurrency needs
    /// longer than `patience`.
    ///
    /// Waiters are served in the order of their arrival. One that a counter denies keeps its turn at that counter,
    /// even if the smaller cost of another one would fit; at its other counters it keeps nobody waiting. A release
    /// in this process wakes the first waiter of a counter, which notices releases in other processes within 1.25 s.
    #[must_use]
    pub fn waiting(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    #[cfg(feature = "tower")]
    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    pub(super) fn name(&self, request: &Request<'_>) -> ReservationName {
        name_of(self.id.as_deref(), request)
    }
}

fn valid_id(id: &str) -> Result<(), TrypemaError> {
    match id.is_empty() || id.len() > MAX_ID_BYTES {
        true => Err(TrypemaError::InvalidReservation { reason: "an id has 1 to 128 bytes" }),
        false => Ok(()),
    }
}

pub(super) fn valid_ttl(ttl: Duration) -> Result<(), TrypemaError> {
    match ttl.is_zero() || ttl > MAX_HOLD {
        true => Err(TrypemaError::InvalidHold { given: ttl, max: MAX_HOLD }),
        false => Ok(()),
    }
}

/// The units that a request has reserved, or the verdict that denied it. Created by
/// [`Engine::reserve`](super::Engine::reserve).
///
/// Settle it with what the request really cost, or release it. If it is dropped, the [`OnDrop`] of its
/// options applies. Counters in Redis are then settled by a task. While Redis fails, the task tries again, until
/// the reservation has expired. Before a process ends, it should
/// [wait for these tasks](super::Engine::wait_for_settlements).
#[derive(Debug)]
#[must_use = "dropping a reservation ends it, as its OnDrop says"]
pub struct Reservation {
    engine: Arc<Engine>,
    verdict: Verdict,
    /// `None` if the request was denied, or if the reservation has been settled.
    outstanding: Option<Outstanding>,
    /// The costs of a settlement that failed, or whose caller stopped waiting.
    unfinished: Option<FinalCosts>,
    expires_in: Duration,
    /// The time at which it expires, by the clock of the engine.
    expires_at: Timestamp,
    is_repeated: bool,
    is_ended: bool,
    on_drop: OnDrop,
    spawner: Spawner,
}

/// A reservation that was just made.
pub(super) struct NewReservation {
    pub(super) verdict: Verdict,
    pub(super) outstanding: Option<Outstanding>,
    pub(super) expires_in: Duration,
    pub(super) is_repeated: bool,
    pub(super) is_ended: bool,
}

impl Reservation {
    pub(super) fn new(engine: Arc<Engine>, new: NewReservation, on_drop: OnDrop, spawner: Spawner) -> Self {
        let NewReservation { verdict, outstanding, expires_in, is_repeated, is_ended } = new;
        let expires_at = match spawner {
            // Counters in this process settle at once, so the time is not needed.
            Spawner::Caller => Timestamp::MAX,
            #[cfg(feature = "_redis")]
            Spawner::Runtime(_) => engine.clock().now() + expires_in,
        };
        Self {
            engine,
            verdict,
            outstanding,
            unfinished: None,
            expires_in,
            expires_at,
            is_repeated,
            is_ended,
            on_drop,
            spawner,
        }
    }

    /// Returns the verdict on the request.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Whether the units are reserved.
    pub fn is_allowed(&self) -> bool {
        self.verdict.is_allowed()
    }

    /// Returns the text by which any server of the same store can settle, release or renew the reservation.
    /// `None` if the request was denied, or if this value has been settled.
    pub fn text(&self) -> Option<String> {
        self.outstanding.as_ref().map(Outstanding::text)
    }

    /// Returns the time after which the reservation expires, counted from when it was made or last renewed.
    pub fn expires_in(&self) -> Duration {
        self.expires_in
    }

    /// Whether an earlier request with the same id made this reservation. Nothing was spent again.
    pub fn is_repeated(&self) -> bool {
        self.is_repeated
    }

    /// Whether the reservation of an earlier request with the same id has been settled or released. The request
    /// is allowed, because it has been counted, but it holds no slot and no units: use a new id for new work.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Settles the reservation at what the request really cost. Unspent units are refunded where they were
    /// taken, if they still count there. Units beyond the estimate are counted, even if they do not fit.
    ///
    /// A unit that `costs` does not name keeps its estimate. If several counters count the same unit, its cost
    /// applies to each of them. Slots of concurrency rules are released. A reservation that was denied, or that
    /// has been settled by this value, has nothing to settle.
    ///
    /// A failure of the store is no `Err`: see [`Settlement::is_settled`]. After one, the call can be repeated. If
    /// the reservation is dropped instead, or if this call is cancelled, it is settled in the background, at these
    /// costs.
    pub async fn settle(&mut self, costs: &[(&str, u64)]) -> Result<Settlement, TrypemaError> {
        self.engine.validate_costs(costs)?;
        Ok(self.end(SettleCosts::Units(costs)).await)
    }

    /// Gives back everything, as if the request had never been made. A failure of the store is as for
    /// [`settle`](Self::settle).
    pub async fn release(&mut self) -> Settlement {
        self.end(SettleCosts::Nothing).await
    }

    async fn end(&mut self, costs: SettleCosts<'_>) -> Settlement {
        let ending = EndingReservation { reservation: self, costs };
        let Self { engine, outstanding, .. } = &mut *ending.reservation;
        let Some(ended) = &*outstanding else { return Settlement::default() };
        let settled = engine.settle_counters(ended, costs, Report::Observer).await;
        if settled.iter().any(|counter| matches!(counter.status, SettledStatus::Failed(_))) {
            // Also if only the counter of a shadow rule failed: dropping the reservation tries again.
            return ended.clone().into_settlement(settled);
        }
        outstanding.take().map(|ended| ended.into_settlement(settled)).unwrap_or_default()
    }

    /// Lets the reservation last for `ttl` from now on. Returns the time after which it expires: `ttl`, or the
    /// `hold` of one of its concurrency rules if that is shorter. `None` if it is no longer outstanding, or if
    /// one of its slots is lost.
    pub async fn renew(&mut self, ttl: Duration) -> Result<Option<Duration>, TrypemaError> {
        valid_ttl(ttl)?;
        let Some(outstanding) = &self.outstanding else { return Ok(None) };
        let renewed = self.engine.renew_at(outstanding, ttl).await?;
        if let Some(expires_in) = renewed {
            self.expires_in = expires_in;
            self.expires_at = self.engine.clock().now() + expires_in;
        }
        Ok(renewed)
    }

    /// Returns the text of the reservation, which stays outstanding so that another process can settle it.
    pub fn into_text(mut self) -> Option<String> {
        self.outstanding.take().map(|outstanding| outstanding.text())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let Some(outstanding) = self.outstanding.take() else { return };
        let costs = match (self.unfinished.take(), self.on_drop) {
            (Some(costs), _) => costs,
            (None, OnDrop::Settle) => FinalCosts::Estimate,
            (None, OnDrop::Release) => FinalCosts::Nothing,
            (None, OnDrop::Keep) => return,
        };
        let ended = EndedReservation { outstanding, costs, expires_at: self.expires_at };
        self.engine.settle_in_background(ended, &self.spawner);
    }
}

/// A reservation that is being settled or released. If that fails, or if its caller stops waiting, the costs are
/// kept.
struct EndingReservation<'r> {
    reservation: &'r mut Reservation,
    costs: SettleCosts<'r>,
}

impl Drop for EndingReservation<'_> {
    fn drop(&mut self) {
        if self.reservation.outstanding.is_some() {
            self.reservation.unfinished = Some(self.costs.to_final());
        }
    }
}

/// The units that a reservation will be settled at in the background.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum FinalCosts {
    /// Those that were reserved.
    #[default]
    Estimate,
    /// None.
    Nothing,
    /// These; the estimate of all other units.
    Units(Vec<(Box<str>, u64)>),
}

#[cfg(feature = "tower")]
impl FinalCosts {
    /// Sets the costs in some units. The others stay as they are.
    pub(crate) fn set(&mut self, costs: &[(&str, u64)]) {
        if !matches!(self, Self::Units(_)) {
            *self = Self::Units(Vec::with_capacity(costs.len()));
        }
        let Self::Units(units) = self else { return };
        for (unit, cost) in costs {
            match units.iter_mut().find(|(known, _)| **known == **unit) {
                Some((_, known)) => *known = *cost,
                None => units.push(((*unit).into(), *cost)),
            }
        }
    }
}

/// The units that a reservation is settled at.
#[derive(Debug, Clone, Copy)]
pub(super) enum SettleCosts<'a> {
    /// Those that were reserved.
    Estimate,
    /// None.
    Nothing,
    /// These; the estimate of all other units.
    Units(&'a [(&'a str, u64)]),
}

impl SettleCosts<'_> {
    fn to_final(self) -> FinalCosts {
        match self {
            Self::Estimate => FinalCosts::Estimate,
            Self::Nothing => FinalCosts::Nothing,
            Self::Units(costs) => {
                FinalCosts::Units(costs.iter().map(|(unit, cost)| ((*unit).into(), *cost)).collect())
            }
        }
    }

    /// Returns the cost in a unit; `None` for the estimate.
    pub(super) fn cost_of(self, unit: &str) -> Option<u64> {
        match self {
            Self::Estimate => None,
            Self::Nothing => Some(0),
            Self::Units(costs) => costs.iter().find(|(named, _)| *named == unit).map(|(_, cost)| *cost),
        }
    }
}

/// A reservation that a counter holds. Returned by [`Engine::holders`](super::Engine::holders).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// A digest of the id, as 32 hexadecimal digits. It names the holder to administrators, and does not settle
    /// the reservation.
    pub id: String,
    /// The reserved units.
    pub units: u64,
    /// The time since the units were recorded.
    pub age: Duration,
    /// The time after which the reservation expires.
    pub expires_in: Duration,
}
