//! `POST /v1/renew`: lets a reservation last longer.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use schemars::JsonSchema;
use serde::Serialize;

use super::accounting::{Accounting, with_accounting};
use super::request::{self, RenewRequest};
use super::response::{json, rounded_down};
use super::{CheckApi, RouteResult, begin, body};
use crate::net::ConnectionSlot;

/// The result of renewing a reservation.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RenewResponse {
    /// Whether the reservation was still outstanding, and lasts longer now. `false` also if one of its slots is
    /// lost, because another request may have it.
    renewed: bool,
    /// Milliseconds, rounded down, after which the reservation expires; `null` if it was not renewed.
    expires_in_ms: Option<u64>,
}

impl CheckApi {
    pub(super) async fn renew(&self, request: Request<Incoming>, slot: &ConnectionSlot) -> RouteResult {
        let body = body::read(request.into_body(), self.max_body, slot).await?;
        let mut request = request::read::<RenewRequest<'_>>(&body)?;
        let named = request.named()?;
        begin(slot)?;
        let borrowed = named.borrowed();
        let sets = borrowed.sets();
        let expires_in = self.app.renew(named.reference(&sets), request.ttl()).await?;
        let response =
            RenewResponse { renewed: expires_in.is_some(), expires_in_ms: expires_in.map(rounded_down) };
        Ok(with_accounting(json(StatusCode::OK, &response), Accounting::MustSend))
    }
}
