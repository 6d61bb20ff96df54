//! `POST /v1/reserve`, `/v1/settle`, `/v1/release` and `/v1/renew`: take the estimated cost of a request, and settle at
//! what it really cost.

use http::StatusCode;
use serde::Serialize;
use trypema::rules::Settlement;

use super::check::decision_response;
use crate::front::http::accounting::{Accounting, with_accounting};
use crate::front::http::query::ReportOptions;
use crate::front::http::response::json;
use crate::front::http::{Api, Exchange, HttpResponse, RouteResult};
use crate::service::json::{ReleaseRequest, RenewRequest, ReserveRequest, SettleRequest, read};
use crate::service::report::{RenewResponse, ReserveResponse, SettleResponse};
use crate::service::{Release, Renew, Reserve, Settle};

impl Api {
    pub(super) async fn reserve(&self, exchange: Exchange<'_>) -> RouteResult {
        let report = ReportOptions::read(exchange.query())?;
        let (work, caller) = (exchange.work, exchange.caller.clone());
        let (request, options) =
            read::<ReserveRequest>(&exchange.body(self.max_body).await?)?.into_parts()?;
        let made = self.service.call(&caller, work, Reserve { request: &request, options }).await?;
        let response = decision_response(made.verdict(), report, &ReserveResponse::new(&made));
        Ok(with_accounting(response, Accounting::MustSend))
    }

    pub(super) async fn settle(&self, exchange: Exchange<'_>) -> RouteResult {
        let (work, caller) = (exchange.work, exchange.caller.clone());
        let mut request: SettleRequest = read(&exchange.body(self.max_body).await?)?;
        let reservation = request.named()?;
        let settle = Settle { reservation: &reservation, costs: request.costs() };
        self.settled(&*self.service.call(&caller, work, settle).await?)
    }

    pub(super) async fn release(&self, exchange: Exchange<'_>) -> RouteResult {
        let (work, caller) = (exchange.work, exchange.caller.clone());
        let reservation = read::<ReleaseRequest>(&exchange.body(self.max_body).await?)?.named()?;
        self.settled(&*self.service.call(&caller, work, Release(&reservation)).await?)
    }

    pub(super) async fn renew(&self, exchange: Exchange<'_>) -> RouteResult {
        let (work, caller) = (exchange.work, exchange.caller.clone());
        let mut request: RenewRequest = read(&exchange.body(self.max_body).await?)?;
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
    with_accounting(json(StatusCode::OK, body), Accounting::MustSend)
}
