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
mod response_body;
mod routes;
mod text;

use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use trypema::http::TrustedProxies;

#[cfg(feature = "unstable-testkit")]
pub(crate) use self::connection::serve;
pub(crate) use self::connection::{Http, Responder};
use self::exchange::Exchange;
pub(crate) use self::problem::ApiError;
pub(crate) use self::response_body::ResponseBody;
use self::routes::{Found, RulesetPermits, SharedText};
use crate::allowed_origins::AllowedOrigins;
use crate::app::App;
use crate::config::Config;
use crate::forward_auth::Profiles;
use crate::net::Work;
use crate::service::Service;

pub(crate) type HttpResponse = Response<ResponseBody>;
type RouteResult = Result<HttpResponse, ApiError>;

/// The state that all routes share.
#[derive(Debug)]
pub(crate) struct Api {
    service: Service,
    origins: AllowedOrigins,
    max_header: usize,
    max_body: usize,
    max_batch: usize,
    trusted_proxies: TrustedProxies,
    profiles: Profiles,
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
    pub(crate) fn new(service: Service, config: &Config) -> Self {
        Self {
            service,
            origins: config.allowed_origins.clone(),
            max_header: config.values.max_header_bytes,
            max_body: config.values.max_body_bytes,
            max_batch: config.values.max_batch,
            trusted_proxies: config.trusted_proxies.clone(),
            profiles: config.profiles.clone(),
            batches: Semaphore::new(routes::parts_at_a_time(config.provider)),
            crowded_batches: Semaphore::new(1),
            rulesets: RulesetPermits::default(),
            metrics: SharedText::default(),
        }
    }

    fn app(&self) -> &Arc<App> {
        self.service.app()
    }

    #[cfg(feature = "unstable-testkit")]
    pub(crate) fn service(&self) -> &Service {
        &self.service
    }

    /// Accounts for a response until it is sent.
    pub(crate) async fn account_for(&self, response: HttpResponse, work: Work) -> HttpResponse {
        accounting::account_for(response, work).await
    }
}

impl Responder for Http {
    fn api(&self) -> &Api {
        &self.api
    }

    /// Answers one request: measures it, traces it, and accounts for its response.
    async fn respond(&self, request: Request<Incoming>, work: Work) -> HttpResponse {
        let traceparent = request.headers().get("traceparent").and_then(|parent| parent.to_str().ok());
        let arrival = self.api.service.arrived(traceparent);
        let found = Found::new(self.listener, request.method(), request.uri().path());
        let label = found.label();
        let response = self.answer(found, request, &work).await;
        let response = self.api.account_for(response, work).await;
        let status = response.status().as_u16();
        let time = self.api.service.answered(arrival, label.name(), status);
        self.api.app().metrics.http.record_response(label, status, time);
        response
    }
}

impl Http {
    /// Answers one request, unless a web page sent it that may not call the server.
    async fn answer(&self, found: Found, request: Request<Incoming>, work: &Work) -> HttpResponse {
        let page = if found.is_open_to_pages() {
            None
        } else {
            match origin::admit(&self.api.origins, request.method(), request.headers()) {
                Ok(page) => page,
                Err(error) => return error.into_response(),
            }
        };
        let mut response = match page.and_then(|page| page.preflight()) {
            Some(preflight) => preflight,
            None => self.dispatch(found, request, work).await.unwrap_or_else(ApiError::into_response),
        };
        if let Some(page) = page {
            page.permit(&mut response);
        }
        response
    }

    /// Calls the handler of a route.
    async fn dispatch(&self, found: Found, request: Request<Incoming>, work: &Work) -> RouteResult {
        if self.listener == RouteListener::Check {
            exchange::refuse_absolute_form(request.uri())?;
        }
        let permission = found.permission();
        let caller = exchange::admit(&self.access, permission, request.headers(), work)?;
        let (route, parameters) = found.into_route()?;
        let exchange = Exchange { request, work, access: &self.access, caller, parameters };
        self.api.handle(route, exchange).await
    }
}
