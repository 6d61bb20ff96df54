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

/// Each route keeps the body, and so its part of the memory budget, until the request made of it is decided. Each
/// response must be sent: the client must not believe that nothing has changed.
impl Api {
    pub(super) async fn reserve(&self, exchange: Exchange<'_>) -> RouteResult {
        let report = ReportOptions::read(exchange.request.uri().query())?;
        let (body, call) = exchange.body(self.max_body).await?;
        let (request, options) = read::<ReserveRequest>(&body)?.into_parts()?;
        let made = call.reserve(&request, options).await?;
        Ok(must_send(decision_response(made.verdict(), report, &ReserveResponse::new(&made))))
    }

    pub(super) async fn settle(&self, exchange: Exchange<'_>) -> RouteResult {
        let (body, call) = exchange.body(self.max_body).await?;
        let mut request: SettleRequest = read(&body)?;
        let reservation = request.named()?;
        self.settled(&*call.settle(&reservation, &request.costs).await?)
    }

    pub(super) async fn release(&self, exchange: Exchange<'_>) -> RouteResult {
        let (body, call) = exchange.body(self.max_body).await?;
        let reservation = read::<ReleaseRequest>(&body)?.named()?;
        self.settled(&*call.release(&reservation).await?)
    }

    pub(super) async fn renew(&self, exchange: Exchange<'_>) -> RouteResult {
        let (body, call) = exchange.body(self.max_body).await?;
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
