//! The administration API: the routes of the administration listener.

use std::sync::Arc;

use futures_util::FutureExt;
use http::{Method, Request};
use hyper::body::Incoming;

use super::access::Access;
use super::operation::SharedText;
use super::problem::ApiError;
use super::{Api, Common, RouteResult, only, rules};
use crate::app::App;
use crate::config::Config;
use crate::metrics::RouteLabel;
use crate::net::ConnectionSlot;

/// Rules, counters and explanations, which need a token; metrics, health and the API description, which
/// need none.
#[derive(Debug)]
pub(crate) struct AdminApi {
    pub(super) app: Arc<App>,
    common: Common,
    pub(super) access: Access,
    pub(super) max_body: usize,
    /// Permits to hold a whole rule set in memory.
    pub(super) rulesets: rules::RulesetPermits,
    pub(super) metrics: SharedText,
}

/// The routes of the administration listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdminRoute {
    Explain,
    Keys,
    Rules,
    Health,
    Operation,
    Unknown,
}

impl AdminApi {
    pub(crate) fn new(common: Common, config: &Config, access: Access) -> Self {
        Self {
            app: Arc::clone(&common.app),
            common,
            access,
            max_body: config.values.max_body_bytes,
            rulesets: rules::RulesetPermits::default(),
            metrics: SharedText::default(),
        }
    }
}

impl Api for AdminApi {
    type Route = AdminRoute;

    fn common(&self) -> &Common {
        &self.common
    }

    fn route_of(path: &str) -> AdminRoute {
        match path {
            "/v1/explain" => AdminRoute::Explain,
            "/v1/rules" | "/v1/ruleset" | "/v1/overrides" | "/v1/lists" | "/v1/candidates" => {
                AdminRoute::Rules
            }
            "/healthz" | "/readyz" => AdminRoute::Health,
            "/" | "/metrics" | "/openapi.json" => AdminRoute::Operation,
            _ if path.starts_with("/v1/keys/") => AdminRoute::Keys,
            _ if rules::is_below(path) => AdminRoute::Rules,
            _ => AdminRoute::Unknown,
        }
    }

    fn is_open_to_pages(route: AdminRoute) -> bool {
        route == AdminRoute::Health
    }

    async fn handle(
        &self,
        route: AdminRoute,
        request: Request<Incoming>,
        slot: &ConnectionSlot,
    ) -> RouteResult {
        match route {
            AdminRoute::Explain => {
                self.access.admit_reader(request.headers(), slot)?;
                Box::pin(self.explain(only(&Method::POST, request)?, slot)).await
            }
            AdminRoute::Keys => Box::pin(self.keys(&request, slot)).await,
            AdminRoute::Rules => self.rules(request, slot).boxed().await,
            AdminRoute::Health => self.health(&request),
            AdminRoute::Operation => self.operation(&request).await,
            AdminRoute::Unknown => Err(ApiError::not_found()),
        }
    }
}

impl From<AdminRoute> for RouteLabel {
    fn from(route: AdminRoute) -> Self {
        match route {
            AdminRoute::Explain => Self::Explain,
            AdminRoute::Keys => Self::Keys,
            AdminRoute::Rules => Self::Rules,
            AdminRoute::Health | AdminRoute::Operation => Self::Operation,
            AdminRoute::Unknown => Self::Unknown,
        }
    }
}
