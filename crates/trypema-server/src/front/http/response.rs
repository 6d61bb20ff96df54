//! Responses: JSON, and bodies that are whole or a stream.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{Either, Full};
use serde::Serialize;
use thiserror::Error;

use super::HttpResponse;
use crate::net::{Delivery, OpenStream, UNACCOUNTED_BYTES, Work};

/// The initial capacity of a response: enough for a few rules without reallocation.
const USUAL_BYTES: usize = 768;

/// Returns a JSON response.
pub(super) fn json_response(status: StatusCode, value: &impl Serialize) -> HttpResponse {
    let mut body = Vec::with_capacity(USUAL_BYTES);
    // Serialising text and numbers cannot fail.
    let _ = serde_json::to_writer(&mut body, value);
    // A long body may have twice the needed capacity, which would not be accounted for.
    if body.len() > UNACCOUNTED_BYTES {
        body.shrink_to_fit();
    }
    response(status, "application/json", body)
}

/// Returns a response without a body.
pub(super) fn empty() -> HttpResponse {
    Response::new(Either::Left(Full::default()))
}

/// Returns a response with a body of this type.
pub(super) fn response(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> HttpResponse {
    let mut response = Response::new(Either::Left(Full::new(body.into())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The body of a response: entirely in memory, or parts that become known over time, perhaps for hours.
pub(crate) type ResponseBody = Either<Full<Bytes>, Box<StreamBody>>;

/// A body that ends when its parts do, or when the server stops.
pub(crate) struct StreamBody {
    parts: Pin<Box<dyn Stream<Item = Bytes> + Send>>,
    /// Missing until the response is complete.
    open: Option<OpenStream>,
}

/// The reason why a stream is cut off.
#[derive(Debug, Clone, Copy, Error)]
#[error("max_buffered_bytes is exhausted")]
pub(crate) struct OutOfMemory;

impl StreamBody {
    /// Returns a body of these parts. Each should be at most some kilobytes.
    #[cfg_attr(not(feature = "unstable-testkit"), allow(dead_code, reason = "so far, only tests stream"))]
    pub(crate) fn new(parts: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self { parts: Box::pin(parts), open: None }
    }

    /// Opens the stream. Fails if there are too many.
    pub(super) fn open(&mut self, work: Work) -> Result<(), Work> {
        self.open = Some(work.into_stream(Delivery::Buffer)?);
        Ok(())
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = OutOfMemory;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, OutOfMemory>>> {
        let Self { parts, open: Some(open) } = &mut *self else { return Poll::Ready(None) };
        if open.poll_ending(context).is_ready() {
            return Poll::Ready(None);
        }
        let part = |part| open.part(part).map(Frame::data).ok_or(OutOfMemory);
        parts.as_mut().poll_next(context).map(|next| next.map(part))
    }
}
