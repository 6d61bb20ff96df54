//! The reservation of a request that is running, and the handle by which its handler sets the cost.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::TrypemaError;
use crate::rules::{Engine, FinalCosts, RenewingReservation};

/// A handle to the reservation of a request, in the extensions of the request. Created by layers that
/// [reserve](super::RateLimitLayerBuilder::reserve).
///
/// The layer settles the reservation when the response has ended: after its body, and also if the client goes
/// away or the handler fails. What was set last counts then. Without any of these calls it is the estimate.
///
/// Clones are cheap. Once the response has ended, calls have no effect.
///
/// ```
/// use axum::Extension;
/// use trypema::TrypemaError;
/// use trypema::tower::ReservationHandle;
///
/// async fn complete(Extension(reservation): Extension<ReservationHandle>) -> Result<String, String> {
///     let (text, tokens) = ("Hello.".to_owned(), 3);
///     reservation.settle_at(&[("tokens", tokens)]).map_err(|error: TrypemaError| error.to_string())?;
///     Ok(text)
/// }
/// # fn is_handler<H: axum::handler::Handler<T, ()>, T>(_: H) {}
/// # is_handler(complete);
/// ```
#[derive(Clone)]
pub struct ReservationHandle {
    shared: Arc<SharedCosts>,
}

struct SharedCosts {
    /// Declares the units.
    engine: Arc<Engine>,
    costs: Mutex<FinalCosts>,
}

impl ReservationHandle {
    /// Sets the cost so far, at which the reservation will be settled. A unit that was never set keeps its
    /// estimate. A streaming handler calls this as it goes along: if the client goes away, the request costs
    /// what was sent until then.
    ///
    /// Costs above the estimate are counted, even if they do not fit.
    ///
    /// # Errors
    ///
    /// The rules do not declare one of the units. Nothing is set.
    pub fn settle_at(&self, costs: &[(&str, u64)]) -> Result<(), TrypemaError> {
        self.shared.engine.validate_costs(costs)?;
        self.shared.edit(|set| set.set(costs));
        Ok(())
    }

    /// Lets the request cost nothing in any unit when the response has ended, as if it had never been made.
    /// Until then, its estimate stays reserved.
    pub fn release(&self) {
        self.shared.edit(|set| *set = FinalCosts::Nothing);
    }
}

impl SharedCosts {
    fn edit<T>(&self, edit: impl FnOnce(&mut FinalCosts) -> T) -> T {
        edit(&mut self.costs.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for ReservationHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let costs = self.shared.edit(|costs| costs.clone());
        f.debug_struct("ReservationHandle").field("costs", &costs).finish_non_exhaustive()
    }
}

/// The reservation of a request that is running. Dropping it settles it.
#[derive(Debug)]
pub(super) struct RunningReservation {
    reservation: RenewingReservation,
    handle: ReservationHandle,
}

impl RunningReservation {
    pub(super) fn new(engine: Arc<Engine>, reservation: RenewingReservation) -> Self {
        let costs = Mutex::new(FinalCosts::Estimate);
        Self { reservation, handle: ReservationHandle { shared: Arc::new(SharedCosts { engine, costs }) } }
    }

    pub(super) fn handle(&self) -> &ReservationHandle {
        &self.handle
    }
}

impl Drop for RunningReservation {
    fn drop(&mut self) {
        self.reservation.settle(self.handle.shared.edit(std::mem::take));
    }
}

/// Carries the reservation of a request from the service that makes it to the one that keeps it, in the
/// request's extensions.
#[derive(Clone)]
pub(super) struct ReservationTransfer(Arc<Mutex<Option<RunningReservation>>>);

impl ReservationTransfer {
    pub(super) fn of(reservation: RunningReservation) -> Self {
        Self(Arc::new(Mutex::new(Some(reservation))))
    }

    pub(super) fn take(&self) -> Option<RunningReservation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
