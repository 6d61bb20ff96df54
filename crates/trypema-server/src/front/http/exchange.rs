//! A request on its way to the handler of its route.

use std::borrow::Cow;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Uri};
use hyper::body::Incoming;

use super::body::{self, Body};
use super::problem::ApiError;
use super::query;
use super::routes::Parameters;
use super::text::decoded_path;
use crate::net::Work;
use crate::refusal::{Permission, Refusal};
use crate::service::{Access, Call, Caller};

/// A request whose caller was admitted to its route.
#[derive(Debug)]
pub(super) struct Exchange<'s> {
    pub(super) request: Request<Incoming>,
    pub(super) call: Call<'s>,
    pub(super) access: &'s Access,
    pub(super) parameters: Parameters,
}

impl<'s> Exchange<'s> {
    pub(super) fn headers(&self) -> &HeaderMap {
        self.request.headers()
    }

    /// Returns the values of these parameters of the query, which may have no others.
    pub(super) fn query<const N: usize>(
        &self,
        names: [&str; N],
    ) -> Result<[Option<Cow<'_, str>>; N], ApiError> {
        query::values(self.request.uri().query(), names, "")
    }

    /// Returns a parameter of the path, as it is written there.
    pub(super) fn parameter(&self, index: usize) -> &str {
        self.parameters.of(self.request.uri().path(), index)
    }

    /// Returns a parameter of the path, decoded. `what` names it in the error.
    pub(super) fn decoded(&self, index: usize, what: &str) -> Result<String, ApiError> {
        let decoded = decoded_path(self.parameter(index)).map(|text| text.into_owned());
        decoded.ok_or_else(|| ApiError::bad_request(format!("{what} not percent-encoded UTF-8")))
    }

    /// Admits the caller to changes, too, for a route that only some requests change something with.
    pub(super) fn admit_to_change(&self) -> Result<Caller, Refusal> {
        admit(self.access, Permission::Change, self.headers(), self.call.work)
    }

    /// Reads the body.
    pub(super) async fn body(self, max: usize) -> Result<(Body, Call<'s>), ApiError> {
        Ok((body::read(self.request.into_body(), max, self.call.work).await?, self.call))
    }
}

/// Admits the caller of a request by its token.
pub(super) fn admit(
    access: &Access,
    permission: Permission,
    headers: &HeaderMap,
    work: &Work,
) -> Result<Caller, Refusal> {
    access.admit(permission, work.peer_address().ip(), bearer(headers))
}

/// Returns the token of `Authorization: Bearer TOKEN`.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked("bearer ".len())?;
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}

/// Refuses a target like `http://x/healthz`. Callers send paths; of a proxy, the client may have written it: Caddy's
/// `rewrite` does not replace `foo:http://x/healthz`, so the client would choose the route and the profile.
pub(super) fn refuse_absolute_form(target: &Uri) -> Result<(), ApiError> {
    if target.scheme().is_none() && target.authority().is_none() {
        return Ok(());
    }
    Err(ApiError::bad_request(
        "the target of a request needs to be a path, as in `GET /v1/check`: a proxy that passes on `http://HOST/PATH` lets \
         its client choose the route",
    ))
}
