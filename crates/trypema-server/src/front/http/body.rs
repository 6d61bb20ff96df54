//! Reads a request body, up to a maximum size and within the memory budget.

use std::ops::Deref;

use bytes::Bytes;
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::problem::ApiError;
use crate::net::{ReservedMemory, UNACCOUNTED_BYTES, Work};

/// The number of bytes that are read before the task yields to other connections.
const BYTES_PER_POLL: usize = 64 * 1024;

/// A body, with its part of the memory budget.
#[derive(Debug)]
pub(super) struct Body {
    bytes: Bytes,
    _reserved: Option<ReservedMemory>,
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The parts of a body that have arrived.
struct BodyBuffer<'p> {
    work: &'p Work,
    /// The length of the whole body, or the maximum length if the request does not declare one.
    expected: usize,
    /// The first part. Nearly every body has only one, which then needs no copy.
    first: Bytes,
    all: Vec<u8>,
    reserved: Option<ReservedMemory>,
}

/// Reads a whole body of at most `max` bytes. The registry of connections enforces the timeout.
pub(super) async fn read(mut body: Incoming, max: usize, work: &Work) -> Result<Body, ApiError> {
    let size = body.size_hint();
    if size.lower() > max as u64 {
        return Err(ApiError::too_large(max));
    }
    let expected = size.exact().and_then(|size| usize::try_from(size).ok()).unwrap_or(max);
    let mut buffer = BodyBuffer { work, expected, first: Bytes::new(), all: Vec::new(), reserved: None };
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::bad_request("the body ended early"))?;
        let Ok(data) = frame.into_data() else { continue };
        if buffer.len() + data.len() > max {
            return Err(ApiError::too_large(max));
        }
        let before = buffer.len();
        buffer.push(data).await?;
        if before / BYTES_PER_POLL < buffer.len() / BYTES_PER_POLL {
            tokio::task::yield_now().await;
        }
    }
    let BodyBuffer { first, all, reserved, .. } = buffer;
    Ok(Body { bytes: if all.is_empty() { first } else { all.into() }, _reserved: reserved })
}

impl BodyBuffer<'_> {
    fn len(&self) -> usize {
        self.first.len() + self.all.len()
    }

    async fn push(&mut self, data: Bytes) -> Result<(), ApiError> {
        if self.len() == 0 {
            self.account_for(data.len()).await?;
            self.first = data;
            return Ok(());
        }
        let needed = self.len() + data.len();
        if needed > self.all.capacity() {
            // Double the capacity, so that few bytes are copied, but never beyond the expected length.
            let capacity = needed.max(self.all.capacity() * 2).min(self.expected.max(needed));
            self.account_for(capacity).await?;
            self.all.reserve_exact(capacity - self.all.len());
        }
        self.all.extend_from_slice(&std::mem::take(&mut self.first));
        self.all.extend_from_slice(&data);
        Ok(())
    }

    async fn account_for(&mut self, bytes: usize) -> Result<(), ApiError> {
        if bytes <= UNACCOUNTED_BYTES {
            return Ok(());
        }
        let has_room = match &mut self.reserved {
            Some(reserved) => reserved.grow_to(bytes).await,
            None => {
                self.reserved = self.work.reserve(bytes).await;
                self.reserved.is_some()
            }
        };
        if has_room { Ok(()) } else { Err(ApiError::out_of_memory()) }
    }
}
