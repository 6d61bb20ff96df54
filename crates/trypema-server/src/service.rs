//! Every decision, whichever front end asks for it.
//!
//! A front end notes the [arrival](Service::arrived) of a request, [admits](Access::admit) its caller, reads the request, and passes
//! it to a method of the [`Call`] that [`Service::call`] returns. It translates the answer or the [`Refusal`] back. A caller is admitted before its request is read, so that a body without a token costs nothing.

mod call;
mod caller;
pub(crate) mod json;
pub(crate) mod report;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use call::{Call, CounterState, ReservationName};
pub(crate) use caller::{Access, Caller};

use crate::app::App;
use crate::clock::Started;
use crate::net::{NotBegun, Work};
use crate::refusal::Refusal;
use crate::spans::{ActiveSpan, Spans};

/// The operations on the rules, for all front ends.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) app: Arc<App>,
    pub(crate) spans: Option<Arc<Spans>>,
}

/// A request that has arrived and is not answered yet.
#[derive(Debug)]
#[must_use = "its span ends when it is answered"]
pub(crate) struct Arrival {
    started: Started,
    span: Option<ActiveSpan>,
}

impl Service {
    /// Returns the operations that an admitted caller may ask for, for the request that is `work`.
    pub(crate) fn call<'s>(&'s self, caller: Caller, work: &'s Work) -> Call<'s> {
        Call { app: &self.app, caller, work }
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
