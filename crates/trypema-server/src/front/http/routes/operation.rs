//! Routes for operators: liveness, readiness, metrics, and descriptions of the API.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::StatusCode;
use tokio::sync::Mutex;

use super::help;
use crate::app::Readiness;
use crate::background_worker::{BackgroundWorkers, Worker, WorkerError};
use crate::clock::Started;
use crate::front::http::exchange::bearer;
use crate::front::http::openapi::{self, Description};
use crate::front::http::response::{json_response, response};
use crate::front::http::{Api, Exchange, HttpResponse, RouteResult};
use crate::metrics::CONTENT_TYPE as METRICS;

const PLAIN: &str = "text/plain; charset=utf-8";

#[rustfmt::skip]
routes! {
    "GET, HEAD" "/healthz" BOTH Open "operation" health boxed,
        "Tell whether the process runs", "", |about| about.responds("200", "The process runs.");
    "GET, HEAD" "/readyz" CHECK Open "operation" readiness boxed,
        "Tell whether the server accepts requests", "", describe_readiness;
    "GET, HEAD" "/readyz" ADMINISTRATION Open "operation" readiness_in_detail boxed,
        "Tell whether the server accepts requests, and with a token why rules were rejected", "",
        describe_readiness;
    "GET, HEAD" "/metrics" ADMINISTRATION Open "operation" metrics boxed,
        "Write metrics for Prometheus", "", |about| about.responds("200", "The metrics.");
    "GET, HEAD" "/openapi.json" ADMINISTRATION Open "operation" description boxed,
        "Describe all of this for programs (OpenAPI 3.1)", "", |about| about.responds("200", "The document.");
    "GET, HEAD" "/" ADMINISTRATION Open "operation" list_routes boxed,
        "List the routes", "", |about| about.responds("200", "The routes.");
}

impl Api {
    async fn health(&self, _: Exchange<'_>) -> RouteResult {
        Ok(response(StatusCode::OK, PLAIN, "ok\n"))
    }

    async fn readiness(&self, _: Exchange<'_>) -> RouteResult {
        Ok(readiness(&self.app().readiness().without_details()))
    }

    /// The response to a reader token or an admin token also says why rules were rejected.
    async fn readiness_in_detail(&self, exchange: Exchange<'_>) -> RouteResult {
        match exchange.access.is_reader(bearer(exchange.headers())) {
            true => Ok(readiness(&self.app().readiness())),
            false => self.readiness(exchange).await,
        }
    }

    async fn metrics(&self, _: Exchange<'_>) -> RouteResult {
        let app = Arc::clone(self.app());
        let text = self.metrics.text(self.app().workers(), move || app.exposition()).await?;
        Ok(response(StatusCode::OK, METRICS, text))
    }

    async fn description(&self, _: Exchange<'_>) -> RouteResult {
        let document = self.app().workers().run(Worker::Operators, openapi::document).await?;
        Ok(response(StatusCode::OK, "application/json", document))
    }

    async fn list_routes(&self, _: Exchange<'_>) -> RouteResult {
        Ok(response(StatusCode::OK, PLAIN, help()))
    }
}

fn readiness(readiness: &Readiness) -> HttpResponse {
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json_response(status, readiness)
}

/// A cache of the metrics text, which the operators' worker writes. A long text is shared between requests,
/// because writing it for every request would let clients overload the server.
#[derive(Debug, Default)]
pub(in crate::front::http) struct SharedText {
    last: ArcSwapOption<(Started, Bytes)>,
    making: Mutex<()>,
}

/// The size from which a text is shared. The text of a few hundred rules is smaller.
const LONG: usize = 256 * 1024;
/// The time for which a text is shared.
const SHARED_FOR: Duration = Duration::from_secs(1);

impl SharedText {
    async fn text(
        &self,
        workers: &BackgroundWorkers,
        make: impl FnOnce() -> String + Send + 'static,
    ) -> Result<Bytes, WorkerError> {
        let last = self.last.load_full();
        // While one request writes a new text, others get the previous one.
        let _making = match (self.making.try_lock(), &last) {
            (Ok(making), Some(last)) if last.0.ago() >= SHARED_FOR => Some(making),
            (_, Some(last)) => return Ok(last.1.clone()),
            (making, None) => making.ok(),
        };
        let text = Bytes::from(workers.run(Worker::Operators, make).await?);
        let is_long = text.len() >= LONG;
        self.last.store(is_long.then(|| Arc::new((Started::now(), text.clone()))));
        Ok(text)
    }
}

fn describe_readiness(about: Description<'_>) -> Description<'_> {
    about
        .responds("200", "The server accepts requests. `warnings` lists what an operator should repair.")
        .responds("503", "The server is stopping.")
}
