//! Waiting for a lease that somebody else has asked for.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use super::shared::Shared;
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::redis::{RedisFailure, RedisFailureKind, RedisKey};
use crate::strategy::Leasable;

impl<S: Leasable> Shared<S> {
    /// Waits for the answer that is under way after `answers` others, but not beyond `deadline`.
    pub(super) async fn answered(
        &self,
        key: &RedisKey,
        answers: u64,
        deadline: Timestamp,
    ) -> Result<(), RedisFailure> {
        let mut alarm = None;
        let failure = poll_fn(|context| {
            let now = self.hub.clock.now();
            let looked = self.table.with(key, |entry| {
                if entry.answers != answers || !entry.holding.is_asking(now) {
                    return Poll::Ready(entry.failure.as_ref().map(of_another));
                }
                if !entry.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                    entry.waiting.push(context.waker().clone());
                }
                Poll::Pending
            });
            if matches!(looked, Some(Poll::Pending)) && SystemClock.now() < deadline {
                if alarm.as_ref().is_none_or(|alarm: &Waker| !alarm.will_wake(context.waker())) {
                    SystemClock.wake_at(deadline, context.waker());
                    alarm = Some(context.waker().clone());
                }
                return Poll::Pending;
            }
            Poll::Ready(looked.and_then(|looked| match looked {
                Poll::Ready(failure) => failure,
                Poll::Pending => None,
            }))
        })
        .await;
        if let Some(alarm) = alarm {
            SystemClock.forget(deadline, &alarm);
        }
        failure.map_or(Ok(()), Err)
    }

    /// Waits for the answers that are under way, for the time of a call at most.
    pub(super) async fn answers(&self) {
        let (now, deadline) = (self.hub.clock.now(), self.redis.deadline_from_now());
        let mut asking = Vec::new();
        self.table.sweep(|entry| {
            if entry.holding.is_asking(now) {
                asking.push((entry.key.clone(), entry.answers));
            }
            true
        });
        for (key, answers) in asking {
            // What failed is not held.
            let _ = self.answered(&key, answers, deadline).await;
        }
    }
}

/// The failure of an answer that others waited for: of theirs nothing was sent.
fn of_another(failure: &RedisFailure) -> RedisFailure {
    let message = format!("the lease that was waited for: {failure}");
    RedisFailure::new(RedisFailureKind::Unavailable, message)
}
