//! Charges responses that clients have not read yet to the memory budget of all connections.

use http_body::Body;

use super::HttpResponse;
use super::problem::ApiError;
use crate::net::{ConnectionSlot, UNACCOUNTED_BYTES};

/// A response extension that changes how the response is charged to the memory budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accounting {
    /// The response reports spent units or a completed change. It is sent even if the budget is exhausted:
    /// after a refusal, the client would repeat the request and spend twice.
    MustSend,
    /// The memory for the response was reserved before the response was written.
    Reserved,
}

/// Attaches `accounting` to a response.
pub(super) fn with_accounting(mut response: HttpResponse, accounting: Accounting) -> HttpResponse {
    response.extensions_mut().insert(accounting);
    response
}

/// Accounts for a response until it is sent. Replaces the response with a 503 if there is no room.
pub(super) async fn account_for(response: HttpResponse, slot: &ConnectionSlot) -> HttpResponse {
    let bytes = response.body().size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let bytes = bytes.unwrap_or(usize::MAX);
    if bytes <= UNACCOUNTED_BYTES {
        return response;
    }
    match response.extensions().get() {
        Some(Accounting::Reserved) => response,
        Some(Accounting::MustSend) => {
            slot.force_hold_response(bytes);
            response
        }
        None if slot.hold_response(bytes).await => response,
        None => ApiError::out_of_memory().into_response(),
    }
}
