//! `POST /v1/reserve`, `/v1/settle`, `/v1/release` and `/v1/renew`: take the estimated cost of a request, and settle at
//! what it really cost.

use http::StatusCode;
use serde::Serialize;
use trypema::rules::Settlement;

use super::check::decision_response;
use super::check::report_options;
use crate::front::http::accounting::{Accounting, with_accounting};
use crate::front::http::openapi::{Schemas, json_body, responses};
use crate::front::http::query::ReportOptions;
use crate::front::http::response::json_response;
use crate::front::http::{Api, Exchange, HttpResponse, RouteResult};
use crate::service::json::{ReleaseRequest, RenewRequest, ReserveRequest, SettleRequest, read};
use crate::service::report::{RenewResponse, ReserveResponse, SettleResponse};
use crate::service::{Release, Renew, Reserve, Settle};
use serde_json::{Value, json};

/// Each route keeps the body, and so its part of the memory budget, until the request made of it is decided.
impl Api {
    pub(super) async fn reserve(&self, exchange: Exchange<'_>) -> RouteResult {
        let report = ReportOptions::read(exchange.query())?;
        let (work, caller) = (exchange.work, exchange.caller.clone());
        let body = exchange.body(self.max_body).await?;
        let (request, options) = read::<ReserveRequest>(&body)?.into_parts()?;
        let made = self.service.call(&caller, work, Reserve { request: &request, options }).await?;
        let response = decision_response(made.verdict(), report, &ReserveResponse::new(&made));
        Ok(with_accounting(response, Accounting::MustSend))
    }

    pub(super) async fn settle(&self, exchange: Exchange<'_>) -> RouteResult {
        let (work, caller) = (exchange.work, exchange.caller.clone());
        let body = exchange.body(self.max_body).await?;
        let mut request: SettleRequest = read(&body)?;
        let reservation = request.named()?;
        let settle = Settle { reservation: &reservation, costs: request.costs() };
        self.settled(&*self.service.call(&caller, work, settle).await?)
    }

    pub(super) async fn release(&self, exchange: Exchange<'_>) -> RouteResult {
        let (work, caller) = (exchange.work, exchange.caller.clone());
        let body = exchange.body(self.max_body).await?;
        let reservation = read::<ReleaseRequest>(&body)?.named()?;
        self.settled(&*self.service.call(&caller, work, Release(&reservation)).await?)
    }

    pub(super) async fn renew(&self, exchange: Exchange<'_>) -> RouteResult {
        let (work, caller) = (exchange.work, exchange.caller.clone());
        let body = exchange.body(self.max_body).await?;
        let mut request: RenewRequest = read(&body)?;
        let reservation = request.named()?;
        let renew = Renew { reservation: &reservation, ttl: request.ttl() };
        let expires_in = self.service.call(&caller, work, renew).await?;
        Ok(must_send(&RenewResponse::new(expires_in)))
    }

    fn settled(&self, settlement: &Settlement) -> RouteResult {
        let rules = self.app().rules();
        Ok(must_send(&SettleResponse::new(settlement, &rules)?))
    }
}

/// Returns a response that is sent in any case: the client must not believe that nothing has changed.
fn must_send(body: &impl Serialize) -> HttpResponse {
    with_accounting(json_response(StatusCode::OK, body), Accounting::MustSend)
}

/// The error statuses of the routes that take the text of a reservation.
const PROBLEMS: [&str; 6] = ["400", "401", "403", "413", "500", "503"];

pub(super) fn describe_reserve(schemas: &mut Schemas) -> Value {
    let answer = schemas.of_response::<ReserveResponse<'_>>();
    json!({
        "description": "Takes the cost from every rule that applies, all or nothing, and holds slots of concurrency rules. Needs a caller token if the server has one. A denial is that of a check. 409: another request has used the id.",
        "parameters": report_options(),
        "requestBody": json_body(&schemas.of_request::<ReserveRequest>()),
        "responses": responses("The decision, and the reservation if the request is allowed.", &answer, &["4XX", "5XX"]),
    })
}

pub(super) fn describe_settle(schemas: &mut Schemas) -> Value {
    let answer = schemas.of_response::<SettleResponse<'_>>();
    json!({
        "description": "Refunds the units that were not spent where they were taken, and counts those that were spent beyond the estimate. Settling again changes nothing. A caller that chose an id may name the reservation by it. Needs a caller token if the server has one.",
        "requestBody": json_body(&schemas.of_request::<SettleRequest>()),
        "responses": responses("The result at every counter.", &answer, &PROBLEMS),
    })
}

pub(super) fn describe_release(schemas: &mut Schemas) -> Value {
    let answer = schemas.of_response::<SettleResponse<'_>>();
    json!({
        "description": "Gives back everything, as if the request had never been made. Needs a caller token if the server has one.",
        "requestBody": json_body(&schemas.of_request::<ReleaseRequest>()),
        "responses": responses("The result at every counter.", &answer, &PROBLEMS),
    })
}

pub(super) fn describe_renew(schemas: &mut Schemas) -> Value {
    let answer = schemas.of_response::<RenewResponse>();
    json!({
        "description": "Needs a caller token if the server has one.",
        "requestBody": json_body(&schemas.of_request::<RenewRequest>()),
        "responses": responses("Whether the reservation is still outstanding.", &answer, &PROBLEMS),
    })
}
