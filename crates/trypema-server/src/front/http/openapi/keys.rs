//! Single counters.

use serde_json::{Value, json};

use super::{Schemas, responses};
use crate::service::report::{KeyResponse, ReleaseHolderResponse, ResetResponse};

const PROBLEMS: [&str; 6] = ["400", "401", "403", "404", "500", "503"];

pub(in super::super) fn show(schemas: &mut Schemas) -> Value {
    json!({"responses": responses("The counter.", &schemas.of_response::<KeyResponse<'_>>(), &PROBLEMS)})
}

pub(in super::super) fn reset(schemas: &mut Schemas) -> Value {
    let answer = schemas.of_response::<ResetResponse<'_>>();
    json!({"responses": responses("The counter was reset.", &answer, &PROBLEMS)})
}

pub(in super::super) fn release_holder(schemas: &mut Schemas) -> Value {
    let answer = schemas.of_response::<ReleaseHolderResponse<'_>>();
    json!({
        "description": "Gives back the units of the reservation at this counter. It stays as it is at its other counters.",
        "responses": responses("Whether the counter held the reservation.", &answer, &PROBLEMS),
    })
}
