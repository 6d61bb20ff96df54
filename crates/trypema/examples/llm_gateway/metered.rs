//! A stream of events that is settled as it goes along.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::Error;
use axum::body::{Body, Bytes};
use http_body::Frame;
use serde_json::Value;
use trypema::tower::ReservationHandle;

use super::app::settle;

/// The stream of a completion. Each event with text is a token; the last event has the real usage.
pub(crate) struct Metered {
    body: Body,
    tokens: u64,
    /// The part of an event that has arrived.
    event: Vec<u8>,
    reservation: ReservationHandle,
}

impl Metered {
    pub(crate) fn new(body: Body, prompt: u64, reservation: ReservationHandle) -> Self {
        Self { body, tokens: prompt, event: Vec::new(), reservation }
    }

    fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.event.push(*byte);
            if self.event.ends_with(b"\n\n") {
                let event = std::mem::take(&mut self.event);
                let json = event.strip_prefix(b"data: ").unwrap_or_default();
                self.count(&serde_json::from_slice(json).unwrap_or_default());
            }
        }
    }

    fn count(&mut self, event: &Value) {
        if event["choices"][0]["delta"]["content"].is_string() {
            self.tokens += 1;
        }
        if let Some(tokens) = event["usage"]["total_tokens"].as_u64() {
            self.tokens = tokens;
        }
        settle(&self.reservation, self.tokens);
    }
}

impl http_body::Body for Metered {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()).and_then(Frame::data_ref) {
            self.read(data);
        }
        Poll::Ready(frame)
    }
}
