//! Operations on reservations.

use std::time::Duration;

use trypema::TrypemaError;
use trypema::rules::{OnDrop, Reservation, ReservationRef, ReserveOptions, Settlement};

use super::undecided;
use crate::app::App;
use crate::attributes::{Costs, OwnedRequest, request_of};
use crate::refusal::{Permission, Refusal};
use crate::service::Operation;

/// Reserves the estimated cost of a request. The reservation outlives the answer: it lasts until somebody settles
/// or releases it, or until it expires.
#[derive(Debug)]
pub(crate) struct Reserve<'r> {
    pub(crate) request: &'r OwnedRequest,
    pub(crate) options: ReserveOptions,
}

impl Operation for Reserve<'_> {
    type Answer = Box<Reservation>;

    const PERMISSION: Permission = Permission::Decide;

    async fn run(self, app: &App) -> Result<Box<Reservation>, Refusal> {
        let pairs = self.request.pairs();
        let sets = pairs.sets();
        let request = request_of(&sets);
        let result = app.engine().reserve(&request, &self.options.on_drop(OnDrop::Keep)).await;
        match &result {
            Ok(made) => {
                // A repeated request spent nothing, and was counted before.
                if !made.is_repeated() {
                    app.metrics.rules.count_reservation(made.verdict());
                    app.metrics.rules.count_skipped(made.verdict(), &request);
                }
                app.denial_log.log(made.verdict(), &request, "reserve");
            }
            Err(TrypemaError::ReservationConflict) => {}
            Err(error) => undecided(app, error, &request, "reserve"),
        }
        Ok(Box::new(result?))
    }
}

/// The name of a reservation: its text, or the id that its caller chose and the request that reserved.
#[derive(Debug)]
pub(crate) enum ReservationName {
    Text(String),
    Id(String, OwnedRequest),
}

impl ReservationName {
    /// Calls `ask` with the name in the form that the engine accepts.
    async fn ask<R>(&self, ask: impl AsyncFnOnce(ReservationRef<'_>) -> R) -> R {
        match self {
            Self::Text(text) => ask(ReservationRef::from(&**text)).await,
            Self::Id(id, request) => {
                let pairs = request.pairs();
                let sets = pairs.sets();
                ask(ReservationRef::of_id(id, request_of(&sets))).await
            }
        }
    }
}

/// Settles a reservation at what the request really cost.
#[derive(Debug)]
pub(crate) struct Settle<'r> {
    pub(crate) reservation: &'r ReservationName,
    pub(crate) costs: &'r Costs,
}

impl Operation for Settle<'_> {
    type Answer = Box<Settlement>;

    const PERMISSION: Permission = Permission::Decide;

    async fn run(self, app: &App) -> Result<Box<Settlement>, Refusal> {
        let costs = self.costs.pairs();
        let settlement =
            self.reservation.ask(async |reservation| app.engine().settle(reservation, &costs).await).await?;
        app.metrics.rules.count_settlement(&settlement);
        Ok(Box::new(settlement))
    }
}

/// Gives back everything that was reserved.
#[derive(Debug)]
pub(crate) struct Release<'r>(pub(crate) &'r ReservationName);

impl Operation for Release<'_> {
    type Answer = Box<Settlement>;

    const PERMISSION: Permission = Permission::Decide;

    async fn run(self, app: &App) -> Result<Box<Settlement>, Refusal> {
        let settlement = self.0.ask(async |reservation| app.engine().release(reservation).await).await?;
        Ok(Box::new(settlement))
    }
}

/// Lets a reservation last longer.
#[derive(Debug)]
pub(crate) struct Renew<'r> {
    pub(crate) reservation: &'r ReservationName,
    pub(crate) ttl: Duration,
}

impl Operation for Renew<'_> {
    /// The time after which the reservation expires, or `None` if it is no longer outstanding.
    type Answer = Option<Duration>;

    const PERMISSION: Permission = Permission::Decide;

    async fn run(self, app: &App) -> Result<Option<Duration>, Refusal> {
        Ok(self.reservation.ask(async |reservation| app.engine().renew(reservation, self.ttl).await).await?)
    }
}
