//! One thing that is stored, as answers tell it.

use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::tagged;
use crate::front::http::Answer;
use crate::front::http::answer::json;

/// One thing that is stored.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::front::http) struct ItemAnswer<'a, T> {
    /// The revision in which it was changed last; `null` if it is in a file.
    pub(super) revision: Option<u64>,
    /// What it says.
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
