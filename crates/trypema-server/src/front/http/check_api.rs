//! The check API: the only routes of the check listener.

use std::sync::Arc;

use http::{Method, Request, StatusCode, Uri};
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use trypema::http::TrustedProxies;

use super::access::Access;
use super::operation::health;
use super::problem::ApiError;
use super::{Api, Common, RouteResult, check, only};
use crate::app::App;
use crate::config::Config;
use crate::forward_auth::Profiles;
use crate::metrics::RouteLabel;
use crate::net::ConnectionSlot;

/// Checks, reservations, forward-auth and health.
#[derive(Debug)]
pub(crate) struct CheckApi {
    pub(super) app: Arc<App>,
    common: Common,
    access: Access,
    pub(super) trusted_proxies: TrustedProxies,
    pub(super) profiles: Profiles,
    pub(super) max_body: usize,
    pub(super) max_batch: usize,
    /// Permits to decide a part of a batch.
    pub(super) batches: Semaphore,
    /// The same for crowded peers.
    pub(super) crowded_batches: Semaphore,
}

/// The routes of the check listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckRoute {
    Check,
    ForwardAuth,
    Reserve,
    Settle,
    Release,
    Renew,
    Health,
    Unknown,
}

impl CheckApi {
    pub(crate) fn new(common: Common, config: &Config, access: Access) -> Self {
        Self {
            app: Arc::clone(&common.app),
            common,
            access,
            trusted_proxies: config.trusted_proxies.clone(),
            profiles: config.profiles.clone(),
            max_body: config.values.max_body_bytes,
            max_batch: config.values.max_batch,
            batches: Semaphore::new(check::parts_at_a_time(config.provider)),
            crowded_batches: Semaphore::new(1),
        }
    }
}

impl Api for CheckApi {
    type Route = CheckRoute;

    fn common(&self) -> &Common {
        &self.common
    }

    fn route_of(path: &str) -> CheckRoute {
        match path {
            "/v1/check" => CheckRoute::Check,
            "/v1/forward-auth" => CheckRoute::ForwardAuth,
            "/v1/reserve" => CheckRoute::Reserve,
            "/v1/settle" => CheckRoute::Settle,
            "/v1/release" => CheckRoute::Release,
            "/v1/renew" => CheckRoute::Renew,
            "/healthz" | "/readyz" => CheckRoute::Health,
            _ if path.starts_with("/v1/forward-auth/") => CheckRoute::ForwardAuth,
            _ => CheckRoute::Unknown,
        }
    }

    /// A forward-auth request carries the headers of the proxied request, so its `Origin` says nothing
    /// about the caller.
    fn is_open_to_pages(route: CheckRoute) -> bool {
        matches!(route, CheckRoute::ForwardAuth | CheckRoute::Health)
    }

    /// Boxes the rare routes: hyper moves the whole future of a request, so the future of a check should
    /// stay small.
    async fn handle(
        &self,
        route: CheckRoute,
        request: Request<Incoming>,
        slot: &ConnectionSlot,
    ) -> RouteResult {
        refuse_absolute_form(request.uri())?;
        let needs_caller = match route {
            CheckRoute::Check
            | CheckRoute::Reserve
            | CheckRoute::Settle
            | CheckRoute::Release
            | CheckRoute::Renew => true,
            CheckRoute::ForwardAuth | CheckRoute::Health | CheckRoute::Unknown => false,
        };
        if needs_caller {
            self.access.admit_caller(request.headers(), slot)?;
        }
        let only_post = |request| only(&Method::POST, request);
        match route {
            CheckRoute::Check => self.check(only_post(request)?, slot).await,
            CheckRoute::ForwardAuth => self.forward_auth(&request, slot).await,
            CheckRoute::Reserve => Box::pin(self.reserve(only_post(request)?, slot)).await,
            CheckRoute::Settle => Box::pin(self.settle(only_post(request)?, slot)).await,
            CheckRoute::Release => Box::pin(self.release(only_post(request)?, slot)).await,
            CheckRoute::Renew => Box::pin(self.renew(only_post(request)?, slot)).await,
            CheckRoute::Health => health(&self.app.readiness().without_details(), &request),
            CheckRoute::Unknown => Err(ApiError::new(
                StatusCode::NOT_FOUND,
                "the check listener serves /v1/check, /v1/reserve, /v1/settle, /v1/release, /v1/renew, \
                 /v1/forward-auth, /healthz and /readyz; administration and /metrics are at admin_listen",
            )),
        }
    }
}

/// Refuses a target like `http://x/healthz`. Callers send paths; of a proxy, the client may have written it: Caddy's
/// `rewrite` does not replace `foo:http://x/healthz`, so the client would choose the route and the profile.
fn refuse_absolute_form(target: &Uri) -> Result<(), ApiError> {
    if target.scheme().is_none() && target.authority().is_none() {
        return Ok(());
    }
    Err(ApiError::bad_request(
        "the target of a request needs to be a path, as in `GET /v1/check`: a proxy that passes on `http://HOST/PATH` lets \
         its client choose the route",
    ))
}

impl From<CheckRoute> for RouteLabel {
    fn from(route: CheckRoute) -> Self {
        match route {
            CheckRoute::Check => Self::Check,
            CheckRoute::ForwardAuth => Self::ForwardAuth,
            CheckRoute::Reserve => Self::Reserve,
            CheckRoute::Settle => Self::Settle,
            CheckRoute::Release => Self::Release,
            CheckRoute::Renew => Self::Renew,
            CheckRoute::Health => Self::Operation,
            CheckRoute::Unknown => Self::Unknown,
        }
    }
}
