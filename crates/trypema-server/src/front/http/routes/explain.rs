//! `POST /v1/explain`: explains the decision that a request would get.

use http::StatusCode;

use crate::attributes::request_of;
use crate::background_worker::Worker;
use crate::front::http::response::json_response;
use crate::front::http::{Api, Exchange, RouteResult};
use crate::service::json::RequestDescription;
use crate::service::report::ExplainResponse;

#[rustfmt::skip]
routes! {
    "POST" "/v1/explain" ADMINISTRATION Read "explain" explain boxed,
        "Explain the decision of every rule, and why others do not apply; spends nothing", r#"{"attributes": {"user": "ann"}, "cost": 1}"#,
        |about| about.reads::<RequestDescription>().answers::<ExplainResponse<'_>>("The decision of every rule.").fails(&["500", "503"]).says("Spends nothing.");
}

impl Api {
    /// Explains a request. The threads that decide do no more than for a check; the reasons of thousands of
    /// rules are found and written on the readers' worker.
    async fn explain(&self, exchange: Exchange<'_>) -> RouteResult {
        let (body, call) = exchange.body(self.max_body()).await?;
        let request = RequestDescription::read(&body)?;
        let prepared = call.explain(&request).await?;
        let finish = move || -> RouteResult {
            // The body's part of the memory budget is for the request, too.
            let _body = body;
            let pairs = request.pairs();
            let explanation = prepared.finish(&request_of(&pairs.sets()))?;
            Ok(json_response(StatusCode::OK, &ExplainResponse::new(&explanation)))
        };
        self.app().workers().run(Worker::Reads, finish).await?
    }
}
