//! `/v1/lists/{list}/{attribute}/{value}`: values that are always allowed, or always denied.

use std::collections::BTreeMap;

use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use trypema::rules::Rules;

use super::EditResponse;
use crate::front::http::problem::ApiError;
use crate::front::http::response::json_response;
use crate::front::http::{Api, Exchange, RouteResult};
use crate::rules::change::{ListName, canonical_value};
use crate::rules::database::{EditScope, ProposedRules, StoredRules};

/// The stored lists: values by attribute.
#[derive(Debug, Serialize, JsonSchema)]
struct ListsResponse<'a> {
    /// Requests with one of these values pass every rule.
    allow: &'a BTreeMap<String, Vec<String>>,
    /// Requests with one of these values are denied.
    block: &'a BTreeMap<String, Vec<String>>,
}

/// The parameters of the path of an entry.
const LIST: usize = 0;
const ATTRIBUTE: usize = 1;
const VALUE: usize = 2;

#[rustfmt::skip]
routes! {
    "GET" "/v1/lists" ADMINISTRATION Read "rules" show_lists boxed,
        "List values that pass every rule (`allow`), or none (`block`)", "",
        |about| about.answers::<ListsResponse<'_>>("The lists.").fails(&["404", "503"]);
    "PUT" "/v1/lists/{list}/{attribute}/{value..}" ADMINISTRATION Change "rules" add_to_list boxed,
        "Add a value to a list", "",
        |about| about.answers::<EditResponse>("The changes.").fails(&["404", "422", "503"]);
    "DELETE" "/v1/lists/{list}/{attribute}/{value..}" ADMINISTRATION Change "rules" remove_from_list boxed,
        "Remove a value from a list", "",
        |about| about.answers::<EditResponse>("The changes.").fails(&["404", "422", "503"]);
}

impl Api {
    async fn show_lists(&self, exchange: Exchange<'_>) -> RouteResult {
        let write = |stored: &StoredRules| {
            let Rules { allow, block, .. } = &stored.rules;
            Ok(json_response(StatusCode::OK, &ListsResponse { allow, block }))
        };
        self.respond_from_stored(&exchange.call, write).await
    }

    async fn add_to_list(&self, exchange: Exchange<'_>) -> RouteResult {
        self.edit_list(exchange, true).await
    }

    async fn remove_from_list(&self, exchange: Exchange<'_>) -> RouteResult {
        self.edit_list(exchange, false).await
    }

    async fn edit_list(&self, exchange: Exchange<'_>, is_adding: bool) -> RouteResult {
        let list = match exchange.parameter(LIST) {
            "allow" => ListName::Allow,
            "block" => ListName::Block,
            _ => return Err(ApiError::unknown_path()),
        };
        let what = "the attribute and the value are";
        let (attribute, value) = (exchange.decoded(ATTRIBUTE, what)?, exchange.decoded(VALUE, what)?);
        if value.is_empty() {
            return Err(ApiError::bad_request("the path needs a value after the attribute"));
        }
        let value = canonical_value(&attribute, &value);
        let make = move |stored: &StoredRules| {
            let mut rules = stored.rules.clone();
            let is_same = |listed: &String| canonical_value(&attribute, listed) == value;
            let values = list.values_of(&mut rules).entry(attribute.clone()).or_default();
            let is_listed = values.iter().any(is_same);
            if !is_adding && !is_listed {
                return Err(ApiError::not_found("this value is not on the list"));
            }
            if is_adding && !is_listed {
                values.push(value.clone());
            }
            if !is_adding {
                values.retain(|listed| !is_same(listed));
            }
            Ok(ProposedRules { rules, scope: EditScope::List, revision: None })
        };
        self.edit(&exchange.call, StatusCode::OK, make).await
    }
}
