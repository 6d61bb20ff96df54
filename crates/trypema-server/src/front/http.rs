//! HTTP/JSON and forward-auth.

mod accounting;
mod admin;
mod answer;
mod body;
mod check;
mod explain;
mod forward_auth;
mod keys;
mod openapi;
mod operation;
mod problem;
mod query;
mod question;
mod refund;
mod rules;
mod talk;
mod text;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use trypema::http::TrustedProxies;

pub(crate) use self::explain::ExplainAnswer;
use self::problem::Refusal;
pub(crate) use self::question::{MAX_ATTRIBUTE_NAME, MAX_ATTRIBUTE_VALUE, MAX_ATTRIBUTES};
use crate::app::App;
use crate::clock::Started;
use crate::config::Config;
use crate::forward_auth::Profiles;
use crate::metrics::Route;
use crate::net::{Phase, Place};
use crate::spans::Spans;
use crate::tokens::Tokens;

/// Everything that is sent is in memory already.
type Answer = Response<Full<Bytes>>;
type Asked = Result<Answer, Refusal>;

/// What requests are answered with.
#[derive(Debug)]
pub(crate) struct Front {
    app: Arc<App>,
    trusted_proxies: TrustedProxies,
    profiles: Profiles,
    tokens: Tokens,
    is_on_loopback: bool,
    spans: Option<Arc<Spans>>,
    max_header: usize,
    max_body: usize,
    max_batch: usize,
    /// A turn for each batch that asks.
    batches: Semaphore,
    /// Turns for whole rule sets.
    rulesets: rules::Turns,
    metrics: operation::SharedText,
}

impl Front {
    pub(crate) fn new(app: Arc<App>, config: &Config, spans: Option<Arc<Spans>>) -> Self {
        Self {
            app,
            trusted_proxies: config.trusted_proxies.clone(),
            profiles: config.profiles.clone(),
            tokens: config.tokens.clone(),
            is_on_loopback: config.is_on_loopback(),
            spans,
            max_header: config.limits.header_bytes,
            max_body: config.limits.body_bytes,
            max_batch: config.limits.batch,
            batches: Semaphore::new(check::BATCHES_AT_A_TIME),
            rulesets: rules::Turns::default(),
            metrics: operation::SharedText::default(),
        }
    }

    /// Answers one request.
    pub(crate) async fn receive(&self, request: Request<Incoming>, place: &Place) -> Answer {
        let started = Started::now();
        place.enter(Phase::Body);
        let route = route_of(request.uri().path());
        let span = self.spans.as_ref().and_then(|spans| Some((spans, spans.begin(request.headers())?)));
        let answer = self.answer(route, request, place).await.unwrap_or_else(Refusal::into_answer);
        let answer = accounting::account_for(answer, place).await;
        self.app.metrics.http.answered(route, answer.status(), started.ago());
        if let Some((spans, begun)) = span {
            spans.end(begun, route.name(), answer.status());
        }
        place.enter(Phase::Answer);
        answer
    }

    /// What is rare is on the heap: hyper moves the whole of a request's future, so it pays to keep that of a check small.
    async fn answer(&self, route: Route, request: Request<Incoming>, place: &Place) -> Asked {
        match route {
            Route::Check => self.check(only(&Method::POST, request)?, place).await,
            Route::ForwardAuth => self.forward_auth(&request, place).await,
            Route::Explain => {
                self.admit_reader(request.headers())?;
                Box::pin(self.explain(only(&Method::POST, request)?, place)).await
            }
            Route::Refund => {
                self.admit_editor(request.headers())?;
                Box::pin(self.refund(only(&Method::POST, request)?, place)).await
            }
            Route::Keys => Box::pin(self.keys(&request, place)).await,
            Route::Rules => self.rules(request, place).boxed().await,
            Route::Operation => self.operation(&request),
            Route::Unknown => Err(Refusal::not_found()),
        }
    }
}

/// From here on counters may change, so that an answer is owed: not to a connection that was ended while its request arrived.
fn begin(place: &Place) -> Result<(), Refusal> {
    if place.enter(Phase::Busy) { Ok(()) } else { Err(Refusal::too_late()) }
}

fn route_of(path: &str) -> Route {
    match path {
        "/v1/check" => Route::Check,
        "/v1/forward-auth" => Route::ForwardAuth,
        "/v1/explain" => Route::Explain,
        "/v1/refund" => Route::Refund,
        "/v1/rules" | "/v1/ruleset" | "/v1/overrides" | "/v1/lists" | "/v1/candidates" => Route::Rules,
        "/" | "/healthz" | "/readyz" | "/metrics" | "/openapi.json" => Route::Operation,
        _ if path.starts_with("/v1/keys/") => Route::Keys,
        _ if path.starts_with("/v1/forward-auth/") => Route::ForwardAuth,
        _ if rules::is_below(path) => Route::Rules,
        _ => Route::Unknown,
    }
}

fn only(method: &Method, request: Request<Incoming>) -> Result<Request<Incoming>, Refusal> {
    if request.method() == method { Ok(request) } else { Err(Refusal::wrong_method(method.as_str())) }
}
