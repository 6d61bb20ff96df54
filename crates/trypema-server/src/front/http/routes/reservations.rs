//! `POST /v1/reserve`, `/v1/settle`, `/v1/release` and `/v1/renew`: take the estimated cost of a request, and settle at
//! what it really cost.

use http::StatusCode;
use trypema::rules::Settlement;

use super::check::decision_response;
use crate::front::http::accounting::must_send;
use crate::front::http::query::ReportOptions;
use crate::front::http::response::json_response;
use crate::front::http::{Api, Exchange, RouteResult};
use crate::service::json::{ReleaseRequest, RenewRequest, ReserveRequest, SettleRequest, read};
use crate::service::report::{RenewResponse, ReserveResponse, SettleResponse};

#[rustfmt::skip]
routes! {
    "POST" "/v1/reserve" CHECK Decide "reserve" reserve boxed,
        "Reserve the estimated cost of a request", r#"{"attributes": {"user": "ann"}, "costs": {"requests": 1}, "ttl": "120s"}"#,
        |about| about.reads::<ReserveRequest>().answers::<ReserveResponse<'_>>("The decision, and the reservation if the request is allowed.").fails(&["4XX", "5XX"])
            .takes_report_options().says("Takes the cost from every rule that applies, all or nothing, and holds slots of concurrency rules. Needs a caller token if the server has one. A denial is that of a check. 409: another request has used the id.");
    "POST" "/v1/settle" CHECK Decide "settle" settle boxed,
        "Settle a reservation at the real cost", r#"{"reservation": "r1.kGxpbWl0aW5nLWlzLWZ1bg", "costs": {"requests": 1}}"#,
        |about| about.reads::<SettleRequest>().answers::<SettleResponse<'_>>("The result at every counter.").fails(&["500", "503"])
            .says("Refunds the units that were not spent where they were taken, and counts those that were spent beyond the estimate. Settling again changes nothing. A caller that chose an id may name the reservation by it. Needs a caller token if the server has one.");
    "POST" "/v1/release" CHECK Decide "release" release boxed,
        "Release a reservation: give everything back", r#"{"reservation": "r1.kGxpbWl0aW5nLWlzLWZ1bg"}"#,
        |about| about.reads::<ReleaseRequest>().answers::<SettleResponse<'_>>("The result at every counter.").fails(&["500", "503"])
            .says("Gives back everything, as if the request had never been made. Needs a caller token if the server has one.");
    "POST" "/v1/renew" CHECK Decide "renew" renew boxed,
        "Let a reservation last longer", r#"{"reservation": "r1.kGxpbWl0aW5nLWlzLWZ1bg", "ttl": "120s"}"#,
        |about| about.reads::<RenewRequest>().answers::<RenewResponse>("Whether the reservation is still outstanding.").fails(&["500", "503"])
            .says("Needs a caller token if the server has one.");
}

/// Each route keeps the body, and so its part of the memory budget, until the request made of it is decided. Each
/// response must be sent: the client must not believe that nothing has changed.
impl Api {
    async fn reserve(&self, exchange: Exchange<'_>) -> RouteResult {
        let report = ReportOptions::read(exchange.request.uri().query())?;
        let (body, call) = exchange.body(self.max_body()).await?;
        let (request, options) = read::<ReserveRequest>(&body)?.into_parts()?;
        let made = call.reserve(&request, options).await?;
        Ok(must_send(decision_response(made.verdict(), report, &ReserveResponse::new(&made))))
    }

    async fn settle(&self, exchange: Exchange<'_>) -> RouteResult {
        let (body, call) = exchange.body(self.max_body()).await?;
        let mut request: SettleRequest = read(&body)?;
        let reservation = request.named()?;
        self.settled(&*call.settle(&reservation, &request.costs).await?)
    }

    async fn release(&self, exchange: Exchange<'_>) -> RouteResult {
        let (body, call) = exchange.body(self.max_body()).await?;
        let reservation = read::<ReleaseRequest>(&body)?.named()?;
        self.settled(&*call.release(&reservation).await?)
    }

    async fn renew(&self, exchange: Exchange<'_>) -> RouteResult {
        let (body, call) = exchange.body(self.max_body()).await?;
        let mut request: RenewRequest = read(&body)?;
        let reservation = request.named()?;
        let expires_in = call.renew(&reservation, request.ttl.0).await?;
        Ok(must_send(json_response(StatusCode::OK, &RenewResponse::new(expires_in))))
    }

    fn settled(&self, settlement: &Settlement) -> RouteResult {
        let rules = self.app().rules();
        Ok(must_send(json_response(StatusCode::OK, &SettleResponse::new(settlement, &rules)?)))
    }
}
