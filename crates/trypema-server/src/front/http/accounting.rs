//! Charges responses that clients have not read yet to the memory budget of all connections.

use http_body::Body;
use http_body_util::Either;

use super::HttpResponse;
use super::problem::ApiError;
use crate::net::{UNACCOUNTED_BYTES, Work};

/// A response extension that changes how the response is charged to the memory budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Accounting {
    /// The response reports spent units or a completed change. It is sent even if the budget is exhausted:
    /// after a refusal, the client would repeat the request and spend twice.
    MustSend,
    /// The memory for the response was reserved before the response was written.
    Reserved,
}

/// Marks a response that reports spent units or a completed change.
pub(super) fn must_send(mut response: HttpResponse) -> HttpResponse {
    response.extensions_mut().insert(Accounting::MustSend);
    response
}

/// Marks a response for whose memory the caller has accounted.
pub(super) fn reserved(mut response: HttpResponse) -> HttpResponse {
    response.extensions_mut().insert(Accounting::Reserved);
    response
}

/// Accounts for a response until it is sent. Replaces the response with a 503 if there is no room.
pub(crate) async fn account_for(mut response: HttpResponse, work: Work) -> HttpResponse {
    let bytes = match response.body_mut() {
        Either::Right(stream) => {
            let Err(work) = stream.open(work) else { return response };
            work.finish_when_written();
            let detail = "the server has too many streams open, or is stopping; retry";
            return ApiError::unavailable(detail).into_response();
        }
        Either::Left(whole) => whole.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok()),
    };
    let bytes = bytes.unwrap_or(usize::MAX);
    if bytes > UNACCOUNTED_BYTES {
        match response.extensions().get() {
            Some(Accounting::Reserved) => {}
            Some(Accounting::MustSend) => work.force_hold_response(bytes),
            None if work.hold_response(bytes).await => {}
            None => response = ApiError::out_of_memory().into_response(),
        }
    }
    work.finish_when_written();
    response
}
