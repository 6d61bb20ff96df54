//! The task that sends batches and waits for their replies.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::batch::Batch;
use super::pending_request::PendingRequest;
use super::{Batcher, DriverStep, unavailable};
use crate::redis::failure::{RedisFailure, RedisFailureKind};
use crate::redis::transport::{Channel, Readiness};

type Connecting = Pin<Box<dyn Future<Output = Result<Channel, RedisFailure>> + Send>>;
type ScriptReply = Pin<Box<dyn Future<Output = Result<::redis::Value, RedisFailure>> + Send>>;

/// The driver task of a batcher. It completes when nothing is queued or in flight.
pub(super) struct Driver {
    batcher: Arc<Batcher>,
    /// Identifies the driver. A driver that was replaced no longer owns the queue.
    number: u64,
    connecting: Option<Connecting>,
    in_flight: Vec<BatchInFlight>,
}

struct BatchInFlight {
    batch: Batch,
    reply: ScriptReply,
}

impl Driver {
    pub(super) fn new(batcher: &Arc<Batcher>, number: u64) -> Self {
        Self { batcher: Arc::clone(batcher), number, connecting: None, in_flight: Vec::new() }
    }

    /// Stores the waker for new requests, and handles callers that have gone since the last poll.
    fn begin(&mut self, waker: &Waker) {
        let mut state = self.batcher.state();
        let Some(driver) = state.driver(self.number) else { return };
        driver.waker = Some(waker.clone());
        driver.woken_at = None;
        let is_caller_gone = std::mem::take(&mut driver.is_caller_gone);
        let expired_in_queue = std::mem::take(&mut driver.expired_in_queue);
        drop(state);
        if is_caller_gone {
            self.end_batches(|in_flight| in_flight.batch.is_abandoned());
        }
        // For the circuit breaker, a dial that outlasts its callers is as bad as a call without a reply.
        if self.connecting.is_some() && expired_in_queue > 0 {
            self.batcher.options.connection.record_slow_dial(self.batcher.options.slot, expired_in_queue);
        }
    }

    /// Polls all batches in flight, oldest first. The first poll of a new batch sends it.
    fn complete_batches(&mut self, context: &mut Context<'_>) {
        self.end_batches(|in_flight| match in_flight.reply.as_mut().poll(context) {
            Poll::Ready(reply) => {
                in_flight.batch.complete(reply);
                true
            }
            Poll::Pending => false,
        });
    }

    fn end_batches(&mut self, mut is_over: impl FnMut(&mut BatchInFlight) -> bool) {
        let (batcher, number) = (&self.batcher, self.number);
        self.in_flight.retain_mut(|in_flight| {
            let is_over = is_over(in_flight);
            if is_over {
                batcher.state().batch_ended(number, in_flight.batch.len());
            }
            !is_over
        });
    }

    /// Polls for the connection of the next batch, and starts to connect if necessary.
    fn poll_connection(&mut self, context: &mut Context<'_>) -> Poll<Result<Channel, RedisFailure>> {
        let mut connecting = match self.connecting.take() {
            Some(connecting) => connecting,
            None => match self.batcher.options.connection.ready(self.batcher.options.slot) {
                Readiness::Ready(channel) => return Poll::Ready(channel),
                Readiness::Pending(connecting) => connecting,
            },
        };
        let poll = connecting.as_mut().poll(context);
        if poll.is_pending() {
            self.connecting = Some(connecting);
        }
        poll
    }

    /// Forms a batch and sends it. If there is no connection, fails all queued requests.
    fn send(&mut self, channel: Result<Channel, RedisFailure>) {
        match channel {
            Ok(channel) => {
                let Some(batch) = self.batcher.state().next_batch(self.number) else { return };
                let call = batch.script_call(self.batcher.now());
                let reply = Box::pin(channel.send(call, self.batcher.options.call_timeout));
                self.in_flight.push(BatchInFlight { batch, reply });
            }
            Err(failure) => self.fail_queue(&failure),
        }
    }

    /// Fails all queued requests. They have spent nothing.
    fn fail_queue(&self, failure: &RedisFailure) {
        let queue = self.batcher.state().take_queue(self.number);
        fail_all(&queue, failure);
    }
}

fn fail_all(queue: &VecDeque<Arc<PendingRequest>>, failure: &RedisFailure) {
    queue.iter().filter_map(|request| request.complete(Err(failure.clone()))).for_each(Waker::wake);
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.begin(context.waker());
        loop {
            self.complete_batches(context);
            // Finish a dial even if the callers that started it are gone: the next request needs the
            // connection.
            let step = match self.connecting {
                Some(_) => DriverStep::SendBatch,
                None => self.batcher.state().next_step(self.number),
            };
            match step {
                DriverStep::SendBatch => match self.poll_connection(context) {
                    Poll::Ready(channel) => self.send(channel),
                    Poll::Pending => return Poll::Pending,
                },
                DriverStep::End if self.in_flight.is_empty() => return Poll::Ready(()),
                DriverStep::Wait | DriverStep::End => return Poll::Pending,
            }
        }
    }
}

/// Fails the requests that are left behind when the runtime shuts down or the driver panics.
impl Drop for Driver {
    fn drop(&mut self) {
        for in_flight in self.in_flight.drain(..) {
            let message = "the async runtime was shut down before the reply arrived";
            in_flight.batch.complete(Err(RedisFailure::new(RedisFailureKind::OutcomeUnknown, message)));
        }
        // One step under the lock: a request that is enqueued later starts the next driver.
        let queue = self.batcher.state().end_driver(self.number);
        fail_all(&queue, &unavailable("no async runtime to send the call on, or it was shut down"));
    }
}
