//! The query parameters of a check: how the response reports the decision.

use std::borrow::Cow;

use trypema::http::HeaderStyle;

use super::problem::ApiError;
use super::text::decoded;
use crate::deny_status::{DenyStatus, NOT_A_DENIAL};

/// The form in which a response reports a decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReportOptions {
    /// The status of a denial; `None` for a 200 with the decision in the body.
    pub(super) deny_status: Option<DenyStatus>,
    /// The headers that report the remaining units.
    pub(super) headers: HeaderStyle,
}

/// A parameter's name and value.
pub(super) type Pair<'a> = (Cow<'a, str>, Cow<'a, str>);

impl ReportOptions {
    /// Reads `deny_status` and `headers`. Without them, only the body reports the decision.
    pub(super) fn read(query: Option<&str>) -> Result<Self, ApiError> {
        let mut options = Self { deny_status: None, headers: HeaderStyle::None };
        for pair in pairs(query.unwrap_or_default()) {
            let (name, value) = pair?;
            match &*name {
                "deny_status" => options.deny_status = Some(deny_status(&value)?),
                "headers" => options.headers = headers(&value)?,
                _ => {
                    let detail = format!("unknown parameter {name:?}: need deny_status or headers");
                    return Err(ApiError::bad_request(detail));
                }
            }
        }
        Ok(options)
    }
}

/// Returns the names and values of a query.
pub(super) fn pairs(query: &str) -> impl Iterator<Item = Result<Pair<'_>, ApiError>> {
    query.split('&').filter(|part| !part.is_empty()).map(|part| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let undecodable = || ApiError::bad_request("the query is not percent-encoded UTF-8");
        decoded(name).zip(decoded(value)).ok_or_else(undecodable)
    })
}

fn deny_status(text: &str) -> Result<DenyStatus, ApiError> {
    let status = text.parse().ok().and_then(DenyStatus::new);
    status.ok_or_else(|| {
        ApiError::bad_request(format!(
            "deny_status: {NOT_A_DENIAL}; without it, a denial is a 200 with the decision in the body"
        ))
    })
}

fn headers(text: &str) -> Result<HeaderStyle, ApiError> {
    match text {
        "standard" => Ok(HeaderStyle::Standard),
        "x-ratelimit" => Ok(HeaderStyle::XRateLimit),
        "none" => Ok(HeaderStyle::None),
        _ => Err(ApiError::bad_request("headers: need standard, x-ratelimit or none")),
    }
}
