//! Bodies of responses: the service's, or a text.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a response behind [`any_body`](super::RateLimitLayer::any_body): that of the service inside, or a
    /// text.
    ///
    /// It is a [`Body`] of [`Bytes`] wherever the inner one is, with the same error.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProjection]
    #[derive(Debug)]
    enum Kind<B> {
        Inner { #[pin] body: B },
        // None once it was sent. Boxed, so that responses of the service inside do not grow by what they rarely are.
        Text { text: Option<Box<Bytes>> },
    }
}

impl<B> ResponseBody<B> {
    /// What the service inside said.
    pub(super) fn inner(body: B) -> Self {
        Self { kind: Kind::Inner { body } }
    }
}

impl<B> From<String> for ResponseBody<B> {
    fn from(text: String) -> Self {
        let text = (!text.is_empty()).then(|| Box::new(Bytes::from(text)));
        Self { kind: Kind::Text { text } }
    }
}

/// Nothing: what layers further out answer with.
impl<B> Default for ResponseBody<B> {
    fn default() -> Self {
        Self { kind: Kind::Text { text: None } }
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
            KindProjection::Inner { body } => body.poll_frame(cx),
            KindProjection::Text { text } => Poll::Ready(text.take().map(|text| Ok(Frame::data(*text)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Text { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            // A text is far shorter than the greatest length.
            Kind::Text { text } => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
        }
    }
}
