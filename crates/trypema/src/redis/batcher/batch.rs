//! The requests that are sent as one script call.

use std::sync::Arc;
use std::task::Waker;

use super::pending_request::PendingRequest;
use crate::clock::Timestamp;
use crate::redis::failure::{RedisFailure, RedisFailureKind};
use crate::redis::protocol::{CheckReply, CheckReplyResult, CheckRequest, put_time};
use crate::redis::script;
use crate::redis::transport::ScriptCall;
use crate::strategy::ReplyReader;

/// Requests that are sent together, in order.
#[derive(Debug)]
pub(super) struct Batch {
    requests: Vec<Arc<PendingRequest>>,
    groups: Vec<CheckGroup>,
}

/// Checks that the script decides together: several of one caller, which are spent all or nothing, or one that
/// consecutive callers have in common.
#[derive(Debug)]
struct CheckGroup {
    /// The index of the first caller.
    caller: usize,
    /// The index of the first check of that caller.
    first: usize,
    checks: usize,
    callers: u32,
}

impl Batch {
    pub(super) fn new(requests: Vec<Arc<PendingRequest>>) -> Self {
        let mut batch = Self { groups: Vec::with_capacity(requests.len()), requests };
        for caller in 0..batch.requests.len() {
            let atomic = batch.requests[caller].atomic();
            if atomic > 0 {
                batch.groups.push(CheckGroup { caller, first: 0, checks: atomic, callers: 1 });
            }
            for first in atomic..batch.requests[caller].checks().len() {
                batch.add(CheckGroup { caller, first, checks: 1, callers: 1 });
            }
        }
        batch
    }

    /// Adds a single check. Consecutive callers that take the same cost from the same key form one group.
    fn add(&mut self, group: CheckGroup) {
        let same = self
            .groups
            .last()
            .filter(|last| last.checks == 1)
            .is_some_and(|last| self.checks_of(last)[0].shares_reply_with(&self.checks_of(&group)[0]));
        match self.groups.last_mut().filter(|_| same) {
            Some(last) => last.callers += 1,
            None => self.groups.push(group),
        }
    }

    fn checks_of(&self, group: &CheckGroup) -> &[CheckRequest] {
        &self.requests[group.caller].checks()[group.first..group.first + group.checks]
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether no caller waits for a reply any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.requests.iter().all(|request| request.is_finished())
    }

    /// Returns the take and the number of its callers if the batch is nothing else. Such a call uses the strategy's own
    /// script.
    fn single(&self) -> Option<(&CheckRequest, u32)> {
        let [group] = self.groups.as_slice() else { return None };
        let [check] = self.checks_of(group) else { return None };
        check.is_plain_take().then_some((check, group.callers))
    }

    /// Returns the script call for the batch. `now` replaces the server's time, if it is given.
    pub(super) fn script_call(&self, now: Option<Timestamp>) -> ScriptCall {
        if let Some((take, callers)) = self.single() {
            return take.single_call(callers, now);
        }
        let mut argument = Vec::with_capacity(64 * (self.groups.len() + 1));
        let mut keys = Vec::with_capacity(self.groups.len());
        put_time(&mut argument, now);
        argument.extend_from_slice(&(self.groups.len() as u16).to_le_bytes());
        for group in &self.groups {
            argument.push(group.checks as u8);
            self.checks_of(group)
                .iter()
                .for_each(|check| check.write(group.callers, &mut keys, &mut argument));
        }
        ScriptCall { script: script::driver(), keys, arguments: vec![argument] }
    }

    /// Gives each caller its part of the reply.
    pub(super) fn complete(&self, reply: Result<::redis::Value, RedisFailure>) {
        let replies = reply.and_then(|reply| match &reply {
            ::redis::Value::BulkString(bytes) => self.read(bytes).ok_or_else(bad_reply),
            _ => Err(bad_reply()),
        });
        let mut replies = replies.map(Vec::into_iter);
        let mut reply_to = |request: &PendingRequest| match &mut replies {
            Ok(replies) => Ok(replies.take(request.checks().len()).collect()),
            Err(failure) => Err(failure.clone()),
        };
        self.requests.iter().filter_map(|request| request.complete(reply_to(request))).for_each(Waker::wake);
    }

    /// Decodes `reply` into a result for each check of each caller, in order. Returns `None` if it is malformed.
    fn read(&self, reply: &[u8]) -> Option<Vec<CheckReplyResult>> {
        let mut reader = ReplyReader::new(reply);
        let now = Timestamp::from_micros(reader.count()?);
        let mut replies = Vec::with_capacity(self.requests.len());
        match self.single() {
            Some((take, callers)) => {
                take.read_parts(callers, &CheckReply::new(now, 0), &mut reader, &mut replies)?;
            }
            None => {
                let mut groups = self.groups.iter();
                groups.try_for_each(|group| {
                    let mut checks = self.checks_of(group).iter();
                    checks.try_for_each(|check| check.read(group.callers, now, &mut reader, &mut replies))
                })?;
            }
        }
        reader.is_empty().then_some(replies)
    }
}

fn bad_reply() -> RedisFailure {
    RedisFailure::new(RedisFailureKind::BadReply, "malformed reply from the script")
}
