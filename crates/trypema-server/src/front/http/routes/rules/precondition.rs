//! `If-Match`: a change names the revision that it is based on, so that no client overwrites changes that
//! it has not seen.

use http::header::IF_MATCH;
use http::{HeaderMap, StatusCode};

use crate::front::http::problem::ApiError;

/// The revision that a change is based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Precondition {
    /// Any revision (`*`).
    Any,
    Revision(u64),
}

impl Precondition {
    /// Parses `If-Match`: `"17"` or `*`. Returns `None` if the header is missing.
    pub(super) fn read(headers: &HeaderMap) -> Result<Option<Self>, ApiError> {
        let Some(given) = headers.get(IF_MATCH) else { return Ok(None) };
        let given = given.to_str().unwrap_or_default().trim();
        if given == "*" {
            return Ok(Some(Self::Any));
        }
        let revision =
            given.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(given).parse();
        let revision =
            revision.map_err(|_| ApiError::bad_request("If-Match: need a revision, as in \"17\", or *"))?;
        Ok(Some(Self::Revision(revision)))
    }

    /// Parses `If-Match`, and fails with 428 if it is missing.
    pub(super) fn required(headers: &HeaderMap) -> Result<Self, ApiError> {
        let missing = || {
            let detail =
                "If-Match is required: send the revision that the change is based on, from ETag, or *";
            ApiError::new(StatusCode::PRECONDITION_REQUIRED, detail)
        };
        Self::read(headers)?.ok_or_else(missing)
    }

    /// Fails with 409 if `what` is no longer at the named revision.
    pub(super) fn check(self, what: &str, revision: u64) -> Result<(), ApiError> {
        match self {
            Self::Revision(named) if named != revision => {
                let detail = format!("{what} changed meanwhile: it is at revision {revision}, not {named}");
                Err(ApiError::new(StatusCode::CONFLICT, detail))
            }
            Self::Any | Self::Revision(_) => Ok(()),
        }
    }
}
