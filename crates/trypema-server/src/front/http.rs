//! HTTP/JSON: the routes of each listener.
//!
//! [`Http`] reads requests with hyper. [`routes`] finds the row of a request in its table, and calls the handler with an
//! [`Exchange`]: the request, and its caller, whom the token admitted.

mod accounting;
mod body;
mod connection;
mod exchange;
mod openapi;
mod origin;
mod problem;
mod query;
mod response;
mod routes;
mod text;

use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::sync::Semaphore;

pub(crate) use self::accounting::account_for;
#[cfg(feature = "unstable-testkit")]
pub(crate) use self::connection::serve;
pub(crate) use self::connection::{Http, Responder};
use self::exchange::Exchange;
pub(crate) use self::problem::ApiError;
use self::response::ResponseBody;
#[cfg(feature = "unstable-testkit")]
pub(crate) use self::response::StreamBody;
use self::routes::{MatchedRoute, RulesetPermits, SharedText};
use crate::app::App;
use crate::config::Config;
use crate::net::{NotBegun, Work};
use crate::refusal::Refusal;
use crate::service::Service;

pub(crate) type HttpResponse = Response<ResponseBody>;
type RouteResult = Result<HttpResponse, ApiError>;

/// The state that all routes share.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) service: Service,
    config: Arc<Config>,
    /// Permits to decide a part of a batch.
    batches: Semaphore,
    /// The same for crowded peers.
    crowded_batches: Semaphore,
    /// Permits to hold a whole rule set in memory.
    rulesets: RulesetPermits,
    metrics: SharedText,
}

/// A listener, whose routes the table of routes names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteListener {
    Check,
    Administration,
}

impl Api {
    pub(crate) fn new(service: Service, config: &Arc<Config>) -> Self {
        Self {
            service,
            config: Arc::clone(config),
            batches: Semaphore::new(routes::parts_at_a_time(config.provider)),
            crowded_batches: Semaphore::new(1),
            rulesets: RulesetPermits::default(),
            metrics: SharedText::default(),
        }
    }

    fn max_body(&self) -> usize {
        self.config.values.max_body_bytes
    }

    fn app(&self) -> &Arc<App> {
        &self.service.app
    }
}

impl Responder for Http {
    fn api(&self) -> &Api {
        &self.api
    }

    /// Answers one request: measures it, traces it, and accounts for its response.
    async fn respond(&self, request: Request<Incoming>, work: Result<Work, NotBegun>) -> HttpResponse {
        let traceparent = request.headers().get("traceparent").and_then(|parent| parent.to_str().ok());
        let arrival = self.api.service.arrived(traceparent);
        let matched = MatchedRoute::new(self.listener, request.method(), request.uri().path());
        let label = matched.label();
        let response = match work {
            Ok(work) => {
                let response = self.answer(matched, request, &work).await;
                account_for(response, work).await
            }
            Err(not_begun) => ApiError::from(Refusal::from(not_begun)).into_response(),
        };
        let status = response.status().as_u16();
        let time = self.api.service.answered(arrival, label, status);
        self.api.app().metrics.http.record_response(label, status, time);
        response
    }
}

impl Http {
    /// Answers one request, unless a web page sent it that may not call the server.
    async fn answer(&self, matched: MatchedRoute, request: Request<Incoming>, work: &Work) -> HttpResponse {
        let page = if matched.is_open_to_pages() {
            None
        } else {
            match origin::admit(&self.api.config.allowed_origins, request.method(), request.headers()) {
                Ok(page) => page,
                Err(error) => return error.into_response(),
            }
        };
        let mut response = match page.and_then(|page| page.preflight()) {
            Some(preflight) => preflight,
            None => self.dispatch(matched, request, work).await.unwrap_or_else(ApiError::into_response),
        };
        if let Some(page) = page {
            page.permit(&mut response);
        }
        response
    }

    /// Calls the handler of a route.
    async fn dispatch(&self, matched: MatchedRoute, request: Request<Incoming>, work: &Work) -> RouteResult {
        if self.listener == RouteListener::Check {
            exchange::refuse_absolute_form(request.uri())?;
        }
        let caller = exchange::admit(&self.access, matched.permission(), request.headers(), work)?;
        let (handler, parameters) = matched.into_handler()?;
        let call = self.api.service.call(caller, work);
        self.api.handle(handler, Exchange { request, call, access: &self.access, parameters }).await
    }
}
