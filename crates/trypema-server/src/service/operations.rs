//! The operations: what each asks of the engine, and how its result is counted and logged.

mod counters;
mod reservations;

use trypema::TrypemaError;
use trypema::rules::{PreparedExplanation, Request, Verdict};

pub(crate) use counters::{Counter, Inspect, ReleaseHolder, Reset};
pub(crate) use reservations::{Release, Renew, ReservationName, Reserve, Settle};

use super::Operation;
use crate::app::App;
use crate::attributes::{OwnedRequest, request_of};
use crate::mode::Mode;
use crate::refusal::{Permission, Refusal};

/// Decides a request.
#[derive(Debug)]
pub(crate) struct Check<'r> {
    pub(crate) mode: Mode,
    pub(crate) request: &'r OwnedRequest,
}

impl Operation for Check<'_> {
    type Answer = Verdict;

    const PERMISSION: Permission = Permission::Decide;

    async fn run(self, app: &App) -> Result<Verdict, Refusal> {
        let pairs = self.request.pairs();
        let sets = pairs.sets();
        let request = request_of(&sets);
        let result = match self.mode {
            Mode::Check => app.engine().check(&request).await,
            Mode::Peek => app.engine().peek(&request).await,
            Mode::Record => app.engine().record(&request).await,
        };
        match &result {
            Ok(verdict) => {
                if self.mode != Mode::Peek {
                    app.metrics.rules.count_check(verdict, self.mode);
                    app.metrics.rules.count_skipped(verdict, &request);
                }
                app.denial_log.log(verdict, &request, self.mode.name());
            }
            Err(error) => undecided(app, error, &request, self.mode.name()),
        }
        Ok(result?)
    }
}

/// Explains the decision that a request would get.
#[derive(Debug)]
pub(crate) struct Explain<'r>(pub(crate) &'r OwnedRequest);

impl Operation for Explain<'_> {
    /// The decisions. Finding the reasons of thousands of other rules takes long, so the caller does it elsewhere.
    type Answer = PreparedExplanation;

    const PERMISSION: Permission = Permission::Read;

    async fn run(self, app: &App) -> Result<PreparedExplanation, Refusal> {
        let pairs = self.0.pairs();
        Ok(app.engine().prepare_explanation(&request_of(&pairs.sets())).await?)
    }
}

/// Counts and logs a request that could not be decided.
fn undecided(app: &App, error: &TrypemaError, request: &Request<'_>, mode: &'static str) {
    app.metrics.rules.count_error(&app.rules(), request);
    if error.is_store_failure() {
        app.metrics.store.undecided.add_one();
    }
    tracing::debug!(mode, "requests: request not decided: {error}");
}
