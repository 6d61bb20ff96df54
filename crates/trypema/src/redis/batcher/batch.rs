//! The requests that are sent as one script call.

use std::sync::Arc;
use std::task::Waker;

use super::pending_request::PendingRequest;
use crate::clock::Timestamp;
use crate::redis::failure::{RedisFailure, RedisFailureKind};
use crate::redis::protocol::{BatchRequest, CallerReplies, CheckReply};
use crate::redis::transport::ScriptCall;

/// Requests that are sent together, in order.
#[derive(Debug)]
pub(super) struct Batch {
    requests: Vec<Arc<PendingRequest>>,
}

impl Batch {
    pub(super) fn new(requests: Vec<Arc<PendingRequest>>) -> Self {
        Self { requests }
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether no caller waits for a reply any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.requests.iter().all(|request| request.is_finished())
    }

    /// Returns the script call for the batch. `now` replaces the server's time, if it is given.
    pub(super) fn script_call(&self, now: Option<Timestamp>) -> ScriptCall {
        self.batch_request().call(now)
    }

    /// Gives each caller its part of the reply.
    pub(super) fn complete(&self, reply: Result<::redis::Value, RedisFailure>) {
        let mut reply = reply.and_then(|reply| self.read(&reply)).map(Vec::into_iter);
        let mut reply_to = |request: &PendingRequest| match &mut reply {
            Ok(reply) if request.is_single() => {
                reply.next().unwrap_or_else(|| Err(bad_reply())).map(CallerReplies::One)
            }
            Ok(reply) => Ok(CallerReplies::Many(reply.take(request.checks().len()).collect())),
            Err(failure) => Err(failure.clone()),
        };
        self.requests.iter().filter_map(|request| request.complete(reply_to(request))).for_each(Waker::wake);
    }

    fn read(&self, reply: &::redis::Value) -> Result<Vec<Result<CheckReply, RedisFailure>>, RedisFailure> {
        match reply {
            ::redis::Value::BulkString(bytes) => self.batch_request().read(bytes).ok_or_else(bad_reply),
            _ => Err(bad_reply()),
        }
    }

    fn batch_request(&self) -> BatchRequest<'_> {
        let mut batch_request = BatchRequest::default();
        self.requests.iter().for_each(|request| batch_request.add(request.checks()));
        batch_request
    }
}

fn bad_reply() -> RedisFailure {
    RedisFailure::new(RedisFailureKind::BadReply, "malformed reply from the script")
}
