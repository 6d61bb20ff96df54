//! `POST /v1/release`: gives back everything that was reserved.

use http::Request;
use hyper::body::Incoming;

use super::request::{self, ReleaseRequest};
use super::{CheckApi, RouteResult, begin, body};
use crate::net::ConnectionSlot;

impl CheckApi {
    pub(super) async fn release(&self, request: Request<Incoming>, slot: &ConnectionSlot) -> RouteResult {
        let body = body::read(request.into_body(), self.max_body, slot).await?;
        let named = request::read::<ReleaseRequest<'_>>(&body)?.named()?;
        begin(slot)?;
        let borrowed = named.borrowed();
        let sets = borrowed.sets();
        let settlement = self.app.release_reservation(named.reference(&sets)).await?;
        self.settled(&settlement)
    }
}
