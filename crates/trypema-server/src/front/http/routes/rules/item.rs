//! The response for one stored item.

use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::with_etag;
use crate::front::http::HttpResponse;
use crate::front::http::response::json_response;

/// One stored item.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::front::http) struct ItemResponse<'a, T> {
    /// The revision of its last change; `null` if it is in a file.
    pub(super) revision: Option<u64>,
    /// The item itself.
    #[serde(flatten)]
    pub(super) item: &'a T,
}

impl<T: Serialize> ItemResponse<'_, T> {
    pub(super) fn into_response(self) -> HttpResponse {
        let response = json_response(StatusCode::OK, &self);
        match self.revision {
            Some(revision) => with_etag(response, revision),
            None => response,
        }
    }
}
