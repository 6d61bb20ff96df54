//! `POST /v1/explain`: explains the decision that a request would get.

use http::StatusCode;

use crate::attributes::request_of;
use crate::background_worker::Worker;
use crate::front::http::response::json;
use crate::front::http::{Api, Exchange, RouteResult};
use crate::service::Explain;
use crate::service::json::RequestDescription;
use crate::service::report::ExplainResponse;

impl Api {
    /// Explains a request. The threads that decide do no more than for a check; the reasons of thousands of
    /// rules are found and written on the readers' worker.
    pub(super) async fn explain(&self, exchange: Exchange<'_>) -> RouteResult {
        let (work, caller) = (exchange.work, exchange.caller.clone());
        let request = RequestDescription::read(&exchange.body(self.max_body).await?)?;
        let prepared = self.service.call(&caller, work, Explain(&request)).await?;
        let finish = move || -> RouteResult {
            let pairs = request.pairs();
            let explanation = prepared.finish(&request_of(&pairs.sets()))?;
            Ok(json(StatusCode::OK, &ExplainResponse::new(&explanation)))
        };
        self.app().workers().run(Worker::Reads, finish).await?
    }
}
