//! Choices about an answer: what stands after the question mark, or in the path of forward-auth.

use std::borrow::Cow;

use http::StatusCode;
use trypema::http::HeaderStyle;

use super::problem::Refusal;
use super::text::decoded;

/// How a decision is to be told.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choices {
    /// The status of a denial.
    pub(super) deny_status: StatusCode,
    /// The headers that tell what is left.
    pub(super) headers: HeaderStyle,
}

/// A name and its value.
pub(super) type Pair<'a> = (Cow<'a, str>, Cow<'a, str>);

impl Choices {
    /// Takes the choices out of `name=value&…`, and gives everything else to `other`.
    pub(super) fn read<'q>(
        mut self,
        query: Option<&'q str>,
        mut other: impl FnMut(Pair<'q>) -> Result<(), Refusal>,
    ) -> Result<Self, Refusal> {
        for pair in pairs(query.unwrap_or_default()) {
            let (name, value) = pair?;
            match &*name {
                "deny_status" => self.deny_status = deny_status(&value)?,
                "headers" => self.headers = headers(&value)?,
                _ => other((name, value))?,
            }
        }
        Ok(self)
    }
}

/// Names and values of a query.
pub(super) fn pairs(query: &str) -> impl Iterator<Item = Result<Pair<'_>, Refusal>> {
    query.split('&').filter(|part| !part.is_empty()).map(|part| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let undecodable = || Refusal::bad_request("what is chosen is not percent-encoded UTF-8");
        decoded(name).zip(decoded(value)).ok_or_else(undecodable)
    })
}

/// 200 leaves it to the body; the others are refusals.
fn deny_status(text: &str) -> Result<StatusCode, Refusal> {
    let number: Option<u16> = text.parse().ok();
    let number = number.filter(|number| *number == 200 || (400..=599).contains(number));
    let status = number.and_then(|number| StatusCode::from_u16(number).ok());
    status.ok_or_else(|| Refusal::bad_request("deny_status: need 200, or a status from 400 to 599"))
}

fn headers(text: &str) -> Result<HeaderStyle, Refusal> {
    match text {
        "standard" => Ok(HeaderStyle::Standard),
        "x-ratelimit" => Ok(HeaderStyle::XRateLimit),
        "none" => Ok(HeaderStyle::None),
        _ => Err(Refusal::bad_request("headers: need standard, x-ratelimit or none")),
    }
}
