//! The parameters of a query.

use std::borrow::Cow;

use serde_json::json;
use trypema::http::HeaderStyle;

use super::openapi::Description;
use super::problem::ApiError;
use super::text::decoded;
use crate::deny_status::{DenyStatus, NOT_A_DENIAL};

/// The form in which the response to a check reports the decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReportOptions {
    /// The status of a denial; `None` for a 200 with the decision in the body.
    pub(super) deny_status: Option<DenyStatus>,
    /// The headers that report the remaining units.
    pub(super) headers: HeaderStyle,
}

impl ReportOptions {
    /// Reads `deny_status` and `headers`. Without them, only the body reports the decision.
    pub(super) fn read(query: Option<&str>) -> Result<Self, ApiError> {
        let [status, headers] = values(query, ["deny_status", "headers"], ": need deny_status or headers")?;
        let headers = match headers.as_deref() {
            Some("standard") => HeaderStyle::Standard,
            Some("x-ratelimit") => HeaderStyle::XRateLimit,
            Some("none") | None => HeaderStyle::None,
            Some(_) => return Err(ApiError::bad_request("headers: need standard, x-ratelimit or none")),
        };
        Ok(Self { deny_status: status.as_deref().map(deny_status).transpose()?, headers })
    }
}

fn deny_status(text: &str) -> Result<DenyStatus, ApiError> {
    let status = text.parse().ok().and_then(DenyStatus::new);
    status.ok_or_else(|| {
        ApiError::bad_request(format!(
            "deny_status: {NOT_A_DENIAL}; without it, a denial is a 200 with the decision in the body"
        ))
    })
}

impl Description<'_> {
    /// Describes [`ReportOptions`].
    pub(super) fn takes_report_options(self) -> Self {
        let status = json!({"type": "integer", "minimum": 400, "maximum": 499, "not": {"enum": [407, 408, 421, 425, 426]}});
        let about = "The status of a denial. Without it, a denial is a 200 with the decision in the body.";
        let headers = json!({"type": "string", "enum": ["standard", "x-ratelimit", "none"]});
        self.takes("deny_status", about, status).takes(
            "headers",
            "The headers that report the remaining units.",
            headers,
        )
    }
}

/// Returns the values of these parameters, of each the last one. The error of another parameter ends with `hint`.
pub(super) fn values<'q, const N: usize>(
    query: Option<&'q str>,
    names: [&str; N],
    hint: &str,
) -> Result<[Option<Cow<'q, str>>; N], ApiError> {
    let mut values = [const { None }; N];
    for part in query.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let undecodable = || ApiError::bad_request("the query is not percent-encoded UTF-8");
        let (name, value) = decoded(name).zip(decoded(value)).ok_or_else(undecodable)?;
        match names.iter().position(|known| *known == name) {
            Some(index) => values[index] = Some(value),
            None => return Err(ApiError::bad_request(format!("unknown parameter {name:?}{hint}"))),
        }
    }
    Ok(values)
}
