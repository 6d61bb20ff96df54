//! The response for one stored item.

use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::tagged;
use crate::front::http::Answer;
use crate::front::http::answer::json;

/// One stored item.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::front::http) struct ItemAnswer<'a, T> {
    /// The revision of its last change; `null` if it is in a file.
    pub(super) revision: Option<u64>,
    /// The item itself.
    #[serde(flatten)]
    pub(super) item: &'a T,
}

impl<T: Serialize> ItemAnswer<'_, T> {
    pub(super) fn into_answer(self) -> Answer {
        let answer = json(StatusCode::OK, &self);
        match self.revision {
            Some(revision) => tagged(answer, revision),
            None => answer,
        }
    }
}
