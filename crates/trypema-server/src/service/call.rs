//! The operations: what each asks of the engine, and how its result is counted and logged. No other code asks the engine to decide.

use std::time::Duration;

use trypema::TrypemaError;
use trypema::rules::{
    Holder, OnDrop, PreparedExplanation, Request, Reservation, ReservationRef, ReserveOptions, Settlement,
    Verdict,
};

use super::Caller;
use crate::app::App;
use crate::attributes::{Costs, OwnedRequest, request_of};
use crate::mode::Mode;
use crate::net::Work;
use crate::refusal::{Permission, Refusal};

/// A request of an admitted caller.
#[derive(Debug)]
pub(crate) struct Call<'s> {
    pub(super) app: &'s App,
    pub(crate) caller: Caller,
    pub(crate) work: &'s Work,
}

/// The state of a counter.
#[derive(Debug)]
pub(crate) struct CounterState {
    /// The decision of its rule about a request that costs nothing.
    pub(crate) verdict: Verdict,
    /// The time until a unit is left and the key is not blocked; `None` if that never is.
    pub(crate) retry_after: Option<Duration>,
    /// The reservations that it holds; `None` if the store could not be asked.
    pub(crate) holders: Option<Vec<Holder>>,
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

impl Call<'_> {
    /// Begins the decision, if the caller was admitted to operations of this kind.
    pub(crate) fn begin(&self, needed: Permission) -> Result<(), Refusal> {
        self.caller.require(needed)?;
        Ok(self.work.begin_decision()?)
    }

    /// Decides a request.
    pub(crate) async fn check(&self, mode: Mode, request: &OwnedRequest) -> Result<Verdict, Refusal> {
        self.begin(Permission::Decide)?;
        let pairs = request.pairs();
        let sets = pairs.sets();
        let request = request_of(&sets);
        let result = match mode {
            Mode::Check => self.app.engine().check(&request).await,
            Mode::Peek => self.app.engine().peek(&request).await,
            Mode::Record => self.app.engine().record(&request).await,
        };
        match &result {
            Ok(verdict) => {
                if mode != Mode::Peek {
                    self.app.metrics.rules.count_check(verdict, &request, mode);
                }
                self.app.denial_log.log(verdict, &request, mode.name());
            }
            Err(error) => self.undecided(error, &request, mode.name()),
        }
        Ok(result?)
    }

    /// Reserves the estimated cost of a request. The reservation outlives the answer: it lasts until somebody settles
    /// or releases it, or until it expires.
    pub(crate) async fn reserve(
        &self,
        request: &OwnedRequest,
        options: ReserveOptions,
    ) -> Result<Box<Reservation>, Refusal> {
        self.begin(Permission::Decide)?;
        let pairs = request.pairs();
        let sets = pairs.sets();
        let request = request_of(&sets);
        let result = self.app.engine().reserve(&request, &options.on_drop(OnDrop::Keep)).await;
        match &result {
            Ok(made) => {
                // A repeated request spent nothing, and was counted before.
                if !made.is_repeated() {
                    self.app.metrics.rules.count_reservation(made.verdict(), &request);
                }
                self.app.denial_log.log(made.verdict(), &request, "reserve");
            }
            Err(TrypemaError::ReservationConflict) => {}
            Err(error) => self.undecided(error, &request, "reserve"),
        }
        Ok(Box::new(result?))
    }

    /// Settles a reservation at what the request really cost.
    pub(crate) async fn settle(
        &self,
        reservation: &ReservationName,
        costs: &Costs,
    ) -> Result<Box<Settlement>, Refusal> {
        self.begin(Permission::Decide)?;
        let (engine, costs) = (self.app.engine(), costs.pairs());
        let settlement =
            reservation.ask(async |reservation| engine.settle(reservation, &costs).await).await?;
        self.app.metrics.rules.count_settlement(&settlement);
        Ok(Box::new(settlement))
    }

    /// Gives back everything that was reserved.
    pub(crate) async fn release(&self, reservation: &ReservationName) -> Result<Box<Settlement>, Refusal> {
        self.begin(Permission::Decide)?;
        let engine = self.app.engine();
        let settlement = reservation.ask(async |reservation| engine.release(reservation).await).await?;
        Ok(Box::new(settlement))
    }

    /// Lets a reservation last longer. Returns the time after which it expires, or `None` if it is no longer
    /// outstanding.
    pub(crate) async fn renew(
        &self,
        reservation: &ReservationName,
        ttl: Duration,
    ) -> Result<Option<Duration>, Refusal> {
        self.begin(Permission::Decide)?;
        let engine = self.app.engine();
        Ok(reservation.ask(async |reservation| engine.renew(reservation, ttl).await).await?)
    }

    /// Explains the decision that a request would get. Finding the reasons of thousands of rules that do not apply
    /// takes long, so the caller does it elsewhere.
    pub(crate) async fn explain(&self, request: &OwnedRequest) -> Result<PreparedExplanation, Refusal> {
        self.begin(Permission::Read)?;
        let pairs = request.pairs();
        Ok(self.app.engine().prepare_explanation(&request_of(&pairs.sets())).await?)
    }

    /// Shows a counter.
    pub(crate) async fn inspect(&self, key: &str) -> Result<CounterState, Refusal> {
        self.begin(Permission::Read)?;
        let engine = self.app.engine();
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
        Ok(CounterState { verdict, retry_after, holders })
    }

    /// Resets a counter. Returns whether it held any state.
    pub(crate) async fn reset(&self, key: &str) -> Result<bool, Refusal> {
        self.begin(Permission::Change)?;
        self.app.engine().reset(key).await?.ok_or(Refusal::UnknownKey)
    }

    /// Releases one reservation at one counter. It stays as it is at its other counters. Returns whether the counter
    /// held it.
    pub(crate) async fn release_holder(&self, key: &str, id: &str) -> Result<bool, Refusal> {
        self.begin(Permission::Change)?;
        self.app.engine().release_holder(key, id).await?.ok_or(Refusal::UnknownKey)
    }

    /// Counts and logs a request that could not be decided.
    fn undecided(&self, error: &TrypemaError, request: &Request<'_>, mode: &'static str) {
        self.app.metrics.rules.count_error(&self.app.rules(), request);
        if error.is_store_failure() {
            self.app.metrics.store.undecided.add_one();
        }
        tracing::debug!(mode, "requests: request not decided: {error}");
    }
}
