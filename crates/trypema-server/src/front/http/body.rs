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

/// Reads a whole body of at most `max` bytes. The registry of connections enforces the timeout.
pub(super) async fn read(mut body: Incoming, max: usize, work: &Work) -> Result<Body, ApiError> {
    let size = body.size_hint();
    if size.lower() > max as u64 {
        return Err(ApiError::too_large(max));
    }
    // The length of the whole body, or the maximum length if the request does not declare one.
    let expected = size.exact().and_then(|size| usize::try_from(size).ok()).unwrap_or(max);
    // Nearly every body has only one part, which then needs no copy.
    let (mut first, mut all, mut reserved) = (Bytes::new(), Vec::new(), None);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::bad_request("the body ended early"))?;
        let Ok(data) = frame.into_data() else { continue };
        let before = first.len() + all.len();
        let needed = before + data.len();
        if needed > max {
            return Err(ApiError::too_large(max));
        }
        if before == 0 {
            reserve(&mut reserved, needed, work).await?;
            first = data;
        } else {
            if needed > all.capacity() {
                // Double the capacity, so that few bytes are copied, but never beyond the expected length.
                let capacity = needed.max(all.capacity() * 2).min(expected.max(needed));
                reserve(&mut reserved, capacity, work).await?;
                all.reserve_exact(capacity - all.len());
            }
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&data);
        }
        if before / BYTES_PER_POLL < needed / BYTES_PER_POLL {
            tokio::task::yield_now().await;
        }
    }
    Ok(Body { bytes: if all.is_empty() { first } else { all.into() }, _reserved: reserved })
}

/// Grows the reserved memory to `bytes`, unless that is too little to be accounted for.
async fn reserve(reserved: &mut Option<ReservedMemory>, bytes: usize, work: &Work) -> Result<(), ApiError> {
    if bytes <= UNACCOUNTED_BYTES {
        return Ok(());
    }
    let has_room = match reserved {
        Some(reserved) => reserved.grow_to(bytes).await,
        None => {
            *reserved = work.reserve(bytes).await;
            reserved.is_some()
        }
    };
    if has_room { Ok(()) } else { Err(ApiError::out_of_memory()) }
}
