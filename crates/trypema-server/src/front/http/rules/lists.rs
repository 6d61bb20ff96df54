//! `/v1/lists/{list}/{attribute}/{value}`: values that are always allowed, or always denied.

use std::collections::BTreeMap;

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use schemars::JsonSchema;
use serde::Serialize;
use trypema::rules::Rules;

use crate::front::http::problem::ApiError;
use crate::front::http::response::json;
use crate::front::http::text::decoded_path;
use crate::front::http::{AdminApi, RouteResult};
use crate::net::ConnectionSlot;
use crate::rules::change::{ListName, canonical_value};
use crate::rules::database::{EditScope, ProposedRules};

/// The stored lists: values by attribute.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::front::http) struct ListsResponse<'a> {
    /// Requests with one of these values pass every rule.
    allow: &'a BTreeMap<String, Vec<String>>,
    /// Requests with one of these values are denied.
    block: &'a BTreeMap<String, Vec<String>>,
}

/// A list entry, as the path names it.
pub(super) struct ListEntryPath<'p> {
    pub(super) list: &'p str,
    pub(super) attribute: &'p str,
    pub(super) value: &'p str,
}

impl AdminApi {
    pub(super) async fn show_lists(&self, slot: &ConnectionSlot) -> RouteResult {
        let response = self.respond_from_stored(slot, |stored| {
            let Rules { allow, block, .. } = &stored.rules;
            Ok(json(StatusCode::OK, &ListsResponse { allow, block }))
        });
        response.await
    }

    pub(super) async fn edit_list_entry(
        &self,
        at: ListEntryPath<'_>,
        request: &Request<Incoming>,
        slot: &ConnectionSlot,
    ) -> RouteResult {
        let list = match at.list {
            "allow" => ListName::Allow,
            "block" => ListName::Block,
            _ => return Err(ApiError::not_found()),
        };
        if request.method() != Method::PUT && request.method() != Method::DELETE {
            return Err(ApiError::wrong_method("PUT, DELETE"));
        }
        let who = self.access.admit_admin(request.headers(), slot)?;
        let undecodable =
            || ApiError::bad_request("the attribute and the value are not percent-encoded UTF-8");
        let attribute = decoded_path(at.attribute).ok_or_else(undecodable)?.into_owned();
        let value = decoded_path(at.value).filter(|value| !value.is_empty()).ok_or_else(undecodable)?;
        let value = canonical_value(&attribute, &value);
        let is_adding = request.method() == Method::PUT;
        let changed = self.edit(&who, slot, move |stored| {
            let mut rules = stored.rules.clone();
            let is_same = |listed: &String| canonical_value(&attribute, listed) == value;
            let values = list.values_of(&mut rules).entry(attribute.clone()).or_default();
            let is_listed = values.iter().any(is_same);
            if !is_adding && !is_listed {
                return Err(ApiError::new(StatusCode::NOT_FOUND, "this value is not on the list"));
            }
            if is_adding && !is_listed {
                values.push(value.clone());
            }
            if !is_adding {
                values.retain(|listed| !is_same(listed));
            }
            Ok(ProposedRules { rules, scope: EditScope::List, revision: None })
        });
        self.edit_response(StatusCode::OK, changed.await?).await
    }
}
