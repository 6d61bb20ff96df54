//! Only web pages of allowed origins may call the server.
//!
//! A browser sends requests on behalf of any page, to any address, and names the page in `Origin`. A page
//! must not spend the limit of a user that it chooses, so the server refuses a request with an `Origin`
//! unless `allowed_origins` contains it. An `Origin` that matches `Host` is no exception: a page can make
//! its own host name resolve to this machine.
//!
//! Requests without `Origin` come from programs, or are a browser's GET or HEAD, which spend and change
//! nothing. Browsers that omit `Origin` elsewhere still send `Sec-Fetch-Site`.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HeaderValue,
    ORIGIN, VARY,
};
use http::{HeaderMap, HeaderName, Method, StatusCode};

use super::HttpResponse;
use super::problem::ApiError;
use super::response::empty;
use crate::allowed_origins::AllowedOrigins;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// All methods of all routes.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
const REQUEST_HEADERS: HeaderValue =
    HeaderValue::from_static("accept, authorization, content-type, if-match, traceparent");
const RESPONSE_HEADERS: HeaderValue = HeaderValue::from_static(
    "etag, retry-after, ratelimit, ratelimit-policy, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset",
);
/// The seconds for which a browser caches the permission: minutes, so that a change of the setting takes
/// effect soon.
const REMEMBERED_S: HeaderValue = HeaderValue::from_static("600");

/// A page that may call the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct AllowedPage<'a> {
    origin: &'a HeaderValue,
    is_preflight: bool,
}

/// Returns the page that sent a request, or `None` if a program sent it.
///
/// # Errors
///
/// A refusal if the page is not allowed.
pub(super) fn admit<'a>(
    allowed: &'a AllowedOrigins,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Option<AllowedPage<'a>>, ApiError> {
    let mut origins = headers.get_all(ORIGIN).iter();
    let Some(given) = origins.next() else {
        return if is_from_page(method, headers) { Err(origin_not_allowed()) } else { Ok(None) };
    };
    let origin = allowed.find(given).filter(|_| origins.next().is_none());
    let is_preflight = method == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    origin.map(|origin| Some(AllowedPage { origin, is_preflight })).ok_or_else(origin_not_allowed)
}

impl AllowedPage<'_> {
    /// Returns the response to a CORS preflight request, or `None` if this is not one.
    pub(super) fn preflight(self) -> Option<HttpResponse> {
        self.is_preflight.then(|| {
            let mut response = empty();
            *response.status_mut() = StatusCode::NO_CONTENT;
            let headers = response.headers_mut();
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS);
            headers.insert(ACCESS_CONTROL_MAX_AGE, REMEMBERED_S);
            response
        })
    }

    /// Adds the headers that let the page read the response.
    pub(super) fn permit(self, response: &mut HttpResponse) {
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.origin.clone());
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, RESPONSE_HEADERS);
        headers.append(VARY, HeaderValue::from_static("origin"));
    }
}

/// Whether a web page sent a request that could change something, although it has no `Origin`.
fn is_from_page(method: &Method, headers: &HeaderMap) -> bool {
    let site = headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes);
    site.is_some_and(|site| site != b"none") && method != Method::GET && method != Method::HEAD
}

fn origin_not_allowed() -> ApiError {
    let detail =
        "web pages of this origin may not call the server; allowed_origins lists the permitted origins";
    ApiError::new(StatusCode::FORBIDDEN, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_allowed_origins_pass() {
        let origins = AllowedOrigins::new(&["https://app.example".to_owned()]).unwrap();
        let admits = |method: Method, given: &[(&str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in given {
                headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
            }
            admit(&origins, &method, &headers).map(|page| page.is_some()).ok()
        };
        assert_eq!(admits(Method::POST, &[]), Some(false));
        assert_eq!(admits(Method::POST, &[("origin", "https://app.example")]), Some(true));
        for foreign in ["null", "", "https://evil.example", "http://app.example", "https://app.example:444"] {
            assert_eq!(admits(Method::POST, &[("origin", foreign)]), None, "{foreign}");
            assert_eq!(admits(Method::GET, &[("origin", foreign)]), None, "{foreign}");
        }
        let both = [("origin", "https://app.example"), ("origin", "https://evil.example")];
        assert_eq!(admits(Method::POST, &both), None, "two origins");
        for site in ["cross-site", "same-site", "same-origin"] {
            assert_eq!(admits(Method::POST, &[("sec-fetch-site", site)]), None, "{site}");
            assert_eq!(admits(Method::GET, &[("sec-fetch-site", site)]), Some(false), "a link: {site}");
        }
        assert_eq!(admits(Method::POST, &[("sec-fetch-site", "none")]), Some(false));
    }
}
