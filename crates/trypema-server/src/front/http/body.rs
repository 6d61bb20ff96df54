//! Reading a body, up to a bound.

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::problem::Refusal;

/// The whole of a body, if it is no larger than `max`. How long it takes is watched over by whoever looks after connections.
pub(super) async fn read(mut body: Incoming, max: usize) -> Result<Bytes, Refusal> {
    if body.size_hint().lower() > max as u64 {
        return Err(Refusal::too_large(max));
    }
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::bad_request("the body ended early"))?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + all.len() + data.len() > max {
            return Err(Refusal::too_large(max));
        }
        // Nearly every body is one piece, which need not be copied.
        if first.is_empty() && all.is_empty() {
            first = data;
        } else {
            if all.is_empty() {
                all.extend_from_slice(&std::mem::take(&mut first));
            }
            all.extend_from_slice(&data);
        }
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}
