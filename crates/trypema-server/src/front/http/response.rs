//! Responses: JSON, and bodies that are whole or a stream.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
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

/// Returns a response with a body of this type.
pub(super) fn response(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> HttpResponse {
    let mut response = Response::new(ResponseBody::from(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The body of a response.
pub(crate) enum ResponseBody {
    /// Entirely in memory.
    Whole(Full<Bytes>),
    /// Parts that become known over time, perhaps for hours.
    Stream(Box<StreamBody>),
}

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

impl ResponseBody {
    /// Returns a body of these parts. Each should be at most some kilobytes.
    #[cfg_attr(not(feature = "unstable-testkit"), allow(dead_code, reason = "so far, only tests stream"))]
    pub(crate) fn stream(parts: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::Stream(Box::new(StreamBody { parts: Box::pin(parts), open: None }))
    }
}

impl StreamBody {
    /// Opens the stream. Fails if there are too many.
    pub(super) fn open(&mut self, work: Work) -> Result<(), Work> {
        self.open = Some(work.into_stream(Delivery::Buffer)?);
        Ok(())
    }

    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, OutOfMemory>>> {
        let Some(open) = &mut self.open else { return Poll::Ready(None) };
        if open.poll_ending(context).is_ready() {
            return Poll::Ready(None);
        }
        self.parts.as_mut().poll_next(context).map(|part| Some(open.part(part?).ok_or(OutOfMemory)))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = OutOfMemory;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, OutOfMemory>>> {
        match self.get_mut() {
            Self::Whole(whole) => {
                let infallible = |error: Infallible| match error {};
                Pin::new(whole).poll_frame(context).map_err(infallible)
            }
            Self::Stream(stream) => {
                stream.poll_part(context).map(|part| part.map(|part| part.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(whole) => whole.is_end_stream(),
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(whole) => whole.size_hint(),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

impl<B: Into<Bytes>> From<B> for ResponseBody {
    fn from(bytes: B) -> Self {
        Self::Whole(Full::new(bytes.into()))
    }
}

impl Default for ResponseBody {
    fn default() -> Self {
        Self::Whole(Full::default())
    }
}
