//! Response bodies: the inner service's, or text.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The response body behind [`any_body`](super::RateLimitLayer::any_body): that of the inner service, or
    /// text.
    ///
    /// If the inner body is a [`Body`] of [`Bytes`], so is this one, with the same error type.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: BodyKind<B>,
    }
}

pin_project! {
    #[project = BodyKindProjection]
    #[derive(Debug)]
    enum BodyKind<B> {
        Inner { #[pin] body: B },
        // `None` after the text was sent. Boxed, to keep the much more common inner variant small.
        Text { text: Option<Box<Bytes>> },
    }
}

impl<B> ResponseBody<B> {
    /// Wraps the body of the inner service.
    pub(super) fn inner(body: B) -> Self {
        Self { kind: BodyKind::Inner { body } }
    }
}

impl<B> From<String> for ResponseBody<B> {
    fn from(text: String) -> Self {
        let text = (!text.is_empty()).then(|| Box::new(Bytes::from(text)));
        Self { kind: BodyKind::Text { text } }
    }
}

/// An empty body, which outer layers need for their own responses.
impl<B> Default for ResponseBody<B> {
    fn default() -> Self {
        Self { kind: BodyKind::Text { text: None } }
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            BodyKindProjection::Inner { body } => body.poll_frame(cx),
            BodyKindProjection::Text { text } => Poll::Ready(text.take().map(|text| Ok(Frame::data(*text)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Inner { body } => body.is_end_stream(),
            BodyKind::Text { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Inner { body } => body.size_hint(),
            // The length of a text always fits into a `u64`.
            BodyKind::Text { text } => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
        }
    }
}
