//! Every decision, whichever front end asks for it.
//!
//! A front end notes the [arrival](Service::arrived) of a request, [admits](Access::admit) its caller, reads the request,
//! passes an [`Operation`] to [`Service::call`], and translates the answer or the [`Refusal`] back. A caller is admitted before its
//! request is read, so that a body without a token costs nothing; `call` demands the [`Caller`] that this gives. The operation asks
//! the engine, and counts and logs the result, so that no front end can forget to.

mod caller;
pub(crate) mod json;
mod operations;
pub(crate) mod report;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use caller::{Access, Caller};
pub(crate) use operations::{
    Check, Counter, Explain, Inspect, Release, ReleaseHolder, Renew, ReservationName, Reserve, Reset, Settle,
};

use crate::app::App;
use crate::clock::Started;
use crate::net::{NotBegun, Work};
use crate::refusal::{Permission, Refusal};
use crate::spans::{ActiveSpan, Spans};

/// The operations on the rules, for all front ends.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    app: Arc<App>,
    spans: Option<Arc<Spans>>,
}

/// An operation that the engine carries out.
pub(crate) trait Operation {
    type Answer;

    /// The permission that its caller needs.
    const PERMISSION: Permission;

    /// Asks the engine, and counts and logs the result.
    fn run(self, app: &App) -> impl Future<Output = Result<Self::Answer, Refusal>> + Send;
}

/// A request that has arrived and is not answered yet.
#[derive(Debug)]
#[must_use = "its span ends when it is answered"]
pub(crate) struct Arrival {
    started: Started,
    span: Option<ActiveSpan>,
}

impl Service {
    pub(crate) fn new(app: Arc<App>, spans: Option<Arc<Spans>>) -> Self {
        Self { app, spans }
    }

    /// Returns the rules, readiness and metrics.
    pub(crate) fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Carries out an operation for the request that is `work`. No other code asks the engine to decide.
    pub(crate) async fn call<O: Operation>(
        &self,
        caller: &Caller,
        work: &Work,
        operation: O,
    ) -> Result<O::Answer, Refusal> {
        caller.require(O::PERMISSION)?;
        work.begin_decision()?;
        operation.run(&self.app).await
    }

    /// Notes the arrival of a request, whose span begins if its `traceparent` is sampled.
    pub(crate) fn arrived(&self, traceparent: Option<&str>) -> Arrival {
        let span = self.spans.as_ref().zip(traceparent).and_then(|(spans, parent)| spans.begin(parent));
        Arrival { started: Started::now(), span }
    }

    /// Ends the span of a request that is answered. Returns the time that the answer took.
    pub(crate) fn answered(&self, arrival: Arrival, name: &'static str, status: u16) -> Duration {
        let Arrival { started, span } = arrival;
        if let Some((spans, span)) = self.spans.as_ref().zip(span) {
            spans.end(span, name, status);
        }
        started.ago()
    }
}

impl From<NotBegun> for Refusal {
    fn from(not_begun: NotBegun) -> Self {
        match not_begun {
            NotBegun::Closed => Self::Closed,
            NotBegun::TooBusy => Self::TooBusy,
        }
    }
}
