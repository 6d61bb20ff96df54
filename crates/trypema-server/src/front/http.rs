//! HTTP/JSON: the check API and the administration API, each on its own listener.

mod access;
mod accounting;
mod admin_api;
mod body;
mod check;
mod check_api;
mod connection;
mod explain;
mod forward_auth;
mod keys;
mod openapi;
mod operation;
mod origin;
mod problem;
mod query;
mod release;
mod renew;
mod request;
mod reserve;
mod response;
mod response_body;
mod rules;
mod settle;
mod text;

use std::sync::Arc;

use http::{Method, Request, Response};
use hyper::body::Incoming;

pub(crate) use self::access::Access;
pub(crate) use self::admin_api::AdminApi;
pub(crate) use self::check_api::CheckApi;
pub(crate) use self::connection::Http;
pub(crate) use self::explain::ExplainResponse;
pub(crate) use self::problem::ApiError;
pub(crate) use self::request::{RequestDescription, request_of};
pub(crate) use self::response_body::ResponseBody;
use crate::allowed_origins::AllowedOrigins;
use crate::app::App;
use crate::clock::Started;
use crate::config::Config;
use crate::metrics::RouteLabel;
use crate::net::{ConnectionSlot, NotBegun, Work};
use crate::spans::Spans;

type HttpResponse = Response<ResponseBody>;
pub(crate) type RouteResult = Result<HttpResponse, ApiError>;

/// The dependencies of both APIs.
#[derive(Debug, Clone)]
pub(crate) struct Common {
    app: Arc<App>,
    spans: Option<Arc<Spans>>,
    origins: AllowedOrigins,
    max_header: usize,
}

impl Common {
    pub(crate) fn new(app: Arc<App>, config: &Config, spans: Option<Arc<Spans>>) -> Self {
        let (origins, max_header) = (config.allowed_origins.clone(), config.limits.header_bytes);
        Self { app, spans, origins, max_header }
    }
}

/// The routes of one listener.
pub(crate) trait Api: Send + Sync + 'static {
    /// A route, as metrics distinguish them.
    type Route: Copy + Into<RouteLabel> + Send;

    fn common(&self) -> &Common;

    /// Returns the route of a path.
    fn route_of(path: &str) -> Self::Route;

    /// Whether any web page may call the route.
    fn is_open_to_pages(route: Self::Route) -> bool;

    /// Answers a request to a route.
    fn handle(
        &self,
        route: Self::Route,
        request: Request<Incoming>,
        slot: &ConnectionSlot,
    ) -> impl Future<Output = RouteResult> + Send;
}

/// Answers one request: measures it, traces it, and accounts for its response.
async fn serve_request<A: Api>(api: &A, request: Request<Incoming>, work: Work) -> HttpResponse {
    let (common, started) = (api.common(), Started::now());
    let route = A::route_of(request.uri().path());
    let span = common.spans.as_ref().and_then(|spans| Some((spans, spans.begin(request.headers())?)));
    let response = route_request(api, route, request, &work).await;
    let response = accounting::account_for(response, work).await;
    common.app.metrics.http.record_response(route.into(), response.status(), started.ago());
    if let Some((spans, active)) = span {
        spans.end(active, route.into().name(), response.status());
    }
    response
}

/// Answers one request, unless a web page sent it that may not call the server.
async fn route_request<A: Api>(
    api: &A,
    route: A::Route,
    request: Request<Incoming>,
    slot: &ConnectionSlot,
) -> HttpResponse {
    let page = if A::is_open_to_pages(route) {
        None
    } else {
        match origin::admit(&api.common().origins, request.method(), request.headers()) {
            Ok(page) => page,
            Err(error) => return error.into_response(),
        }
    };
    let mut response = match page.and_then(|page| page.preflight()) {
        Some(preflight) => preflight,
        None => api.handle(route, request, slot).await.unwrap_or_else(ApiError::into_response),
    };
    if let Some(page) = page {
        page.permit(&mut response);
    }
    response
}

/// Begins the decision. From here on counters may change, so the client must get an answer. Fails if the
/// connection was ended while the request arrived.
fn begin(work: &Work) -> Result<(), ApiError> {
    Ok(work.begin_decision()?)
}

impl From<NotBegun> for ApiError {
    fn from(not_begun: NotBegun) -> Self {
        match not_begun {
            NotBegun::Closed => Self::too_late(),
            NotBegun::TooBusy => Self::unavailable("the connection has too many requests at a time; retry"),
        }
    }
}

fn only(method: &Method, request: Request<Incoming>) -> Result<Request<Incoming>, ApiError> {
    if request.method() == method { Ok(request) } else { Err(ApiError::wrong_method(method.as_str())) }
}
