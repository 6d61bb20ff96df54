//! `POST /v1/reserve`: takes the estimated cost of a request, to settle at what it really cost.

use http::Request;
use hyper::body::Incoming;
use schemars::JsonSchema;
use serde::Serialize;
use trypema::rules::Reservation;

use super::accounting::{Accounting, with_accounting};
use super::check::decision_response;
use super::query::ReportOptions;
use super::request::{self, ReserveRequest, request_of};
use super::response::{CheckResponse, rounded_down};
use super::{CheckApi, RouteResult, begin, body};
use crate::mode::Mode;
use crate::net::ConnectionSlot;

/// The decision about a reservation. A denial has the fields of a denied check alone.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ReserveResponse<'a> {
    #[serde(flatten)]
    decision: CheckResponse<'a>,
    /// The text by which the reservation is settled, released or renewed, on any server with the same
    /// counters. Any caller that knows it can do so.
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<String>,
    /// Milliseconds, rounded down, after which the reservation expires: the `ttl`, or the `hold` of a
    /// concurrency rule if that is shorter.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in_ms: Option<u64>,
    /// Whether an earlier request with the same id made the reservation, so that this one spent nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    repeated: Option<bool>,
    /// Present if that reservation has been settled or released since: it holds no slot and no units. Use a new id
    /// for new work.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<bool>,
}

impl<'a> ReserveResponse<'a> {
    fn new(made: &'a Reservation) -> Self {
        Self {
            decision: CheckResponse::new(made.verdict(), Mode::Check),
            reservation: made.text(),
            expires_in_ms: made.is_allowed().then(|| rounded_down(made.expires_in())),
            repeated: made.is_allowed().then(|| made.is_repeated()),
            ended: made.is_ended().then_some(true),
        }
    }
}

impl CheckApi {
    pub(super) async fn reserve(&self, request: Request<Incoming>, slot: &ConnectionSlot) -> RouteResult {
        let options = ReportOptions::read(request.uri().query())?;
        let body = body::read(request.into_body(), self.max_body, slot).await?;
        let (sets, reserve_options) = request::read::<ReserveRequest<'_>>(&body)?.into_parts()?;
        begin(slot)?;
        let borrowed = sets.borrowed();
        let sets = borrowed.sets();
        let made = self.app.reserve(&request_of(&sets), reserve_options).await?;
        let response = decision_response(made.verdict(), options, &ReserveResponse::new(&made));
        Ok(with_accounting(response, Accounting::MustSend))
    }
}
