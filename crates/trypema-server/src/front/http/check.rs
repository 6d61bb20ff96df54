//! `POST /v1/check`: decides whether a request may proceed.

use std::thread;

use futures_util::future::join_all;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use trypema::http::{ErrorCode, HeaderStyle, Policy, Problem};
use trypema::rules::{Request as Asking, Verdict};

use super::accounting::{Accounting, marked};
use super::answer::{CheckAnswer, json, json_bytes};
use super::problem::Refusal;
use super::query::Choices;
use super::question::{self, Question};
use super::{Answer, Asked, CheckApi, begin, body};
use crate::config::ProviderChoice;
use crate::deny_status::DenyStatus;
use crate::mode::Mode;
use crate::net::Place;

/// The number of requests of a batch that are sent to Redis at a time: enough for one round trip to serve
/// many, few enough that the last ones meet the Redis deadline.
const AT_A_TIME: usize = 32;
/// The number of batch parts that wait for Redis at a time.
const PARTS_IN_REDIS: usize = 2;

/// Returns the number of batch parts that are decided at a time, so that batches do not delay single
/// checks. In memory, decisions never wait, so they may use half of the processors. Batches take turns
/// after every part.
pub(super) fn parts_at_a_time(provider: &ProviderChoice) -> usize {
    match provider {
        ProviderChoice::Memory => thread::available_parallelism().map_or(1, |count| count.get().div_ceil(2)),
        ProviderChoice::Redis(_) | ProviderChoice::Hybrid(..) => PARTS_IN_REDIS,
    }
}

/// The bytes that are reserved for the response to one request of a batch, before any request spends units.
/// With a few rules the response is smaller.
const ANSWER_BYTES: usize = 1_024;
/// The length of the shortest usual request in a batch, which gives an estimate of the batch's size before
/// it is parsed.
const SHORTEST_QUESTION: usize = 24;

impl CheckApi {
    pub(super) async fn check(&self, request: Request<Incoming>, place: &Place) -> Asked {
        let choices = Choices::read(request.uri().query())?;
        let body = body::read(request.into_body(), self.max_body, place).await?;
        if question::is_batch(&body) {
            return self.check_batch(&body, place).await;
        }
        let question: Question<'_> = question::read(&body)?;
        begin(place)?;
        let answer = told(&self.verdict(&question).await?, question.mode, choices);
        Ok(match question.mode {
            Mode::Look => answer,
            Mode::Check | Mode::Record => marked(answer, Accounting::MustSend),
        })
    }

    /// Decides a batch. Memory for the response is reserved before the batch is parsed, so a batch that
    /// finds no memory costs next to nothing.
    async fn check_batch(&self, body: &[u8], place: &Place) -> Asked {
        // A batch that waits for its turn has spent nothing yet, so its connection may still be evicted.
        let _turn = place.batch_turn().await;
        let most = (body.len() / SHORTEST_QUESTION + 1).min(self.max_batch);
        let mut reserved = place.reserve(most * ANSWER_BYTES).await.ok_or_else(Refusal::out_of_memory)?;
        let questions = {
            // The semaphore is never closed.
            let _part = self.batches(place).acquire().await;
            question::read_batch(body, self.max_batch)?
        };
        if !reserved.grow_to(questions.len() * ANSWER_BYTES).await {
            return Err(Refusal::out_of_memory());
        }
        begin(place)?;
        let answer = Box::pin(self.each(&questions, self.batches(place))).await;
        reserved.become_answer(answer.len());
        Ok(marked(json_bytes(StatusCode::OK, answer), Accounting::Reserved))
    }

    /// Returns the semaphore for batch parts. Crowded peers have their own: their tasks run on threads of low
    /// priority, and could hold a shared permit for a long time while other peers wait for it.
    fn batches(&self, place: &Place) -> &Semaphore {
        if place.is_crowded() { &self.crowded_batches } else { &self.batches }
    }

    async fn verdict(&self, question: &Question<'_>) -> Result<Verdict, Refusal> {
        let attributes = question.attributes.pairs();
        let asking = Asking::new(&attributes).costing(question.cost);
        Ok(self.app.ask(question.mode, &asking).await?)
    }

    /// Decides all requests in order, [`AT_A_TIME`] at a time. With Redis, these share one round trip.
    async fn each(&self, questions: &[Question<'_>], batches: &Semaphore) -> Vec<u8> {
        let mut all = vec![b'['];
        for some in questions.chunks(AT_A_TIME) {
            // The semaphore is never closed.
            let turn = batches.acquire().await;
            let verdicts = join_all(some.iter().map(|question| self.verdict(question))).await;
            for (question, verdict) in some.iter().zip(verdicts) {
                if all.len() > 1 {
                    all.push(b',');
                }
                match verdict {
                    Ok(verdict) => {
                        // Serialising text and numbers cannot fail.
                        let _ = serde_json::to_writer(&mut all, &CheckAnswer::new(&verdict, question.mode));
                    }
                    Err(refusal) => {
                        all.extend_from_slice(format!("{{\"error\":{}}}", refusal.to_json()).as_bytes());
                    }
                }
            }
            drop(turn);
            // Decisions in memory never wait: without this, a long batch would keep its thread from all
            // other connections.
            tokio::task::yield_now().await;
        }
        all.push(b']');
        // Only the length is accounted for, so release the spare capacity.
        all.shrink_to_fit();
        all
    }
}

/// Returns the response in the form that the query asks for. A denial by `on_store_failure`, for which
/// nothing was counted, is always a 503.
fn told(verdict: &Verdict, mode: Mode, choices: Choices) -> Answer {
    let is_uncounted =
        verdict.is_substitute() && verdict.decided_by().is_some_and(|denied| denied.decision.is_uncounted());
    let in_place_of_store = is_uncounted.then_some(DenyStatus::TOO_MANY_REQUESTS);
    if let (Some(status), false) = (choices.deny_status.or(in_place_of_store), verdict.is_allowed()) {
        return denied(verdict, status, choices.headers);
    }
    let mut answer = json(StatusCode::OK, &CheckAnswer::new(verdict, mode));
    choices.headers.write(Policy::of_verdict(verdict), answer.headers_mut());
    answer
}

/// Returns a denial as an HTTP status with a problem body and `Retry-After`. A denial because of an
/// unavailable store is a 503, whatever `status` is. A blocked client gets 403 instead of 429.
pub(super) fn denied(verdict: &Verdict, status: DenyStatus, headers: HeaderStyle) -> Answer {
    let Some(problem) = Problem::of_verdict(verdict) else { return Answer::default() };
    let problem = match problem.code() {
        ErrorCode::ServiceUnavailable => problem,
        ErrorCode::Blocked if status == DenyStatus::TOO_MANY_REQUESTS => problem,
        _ => problem.with_status(status.status()),
    };
    let mut answer = Refusal::Library(Box::new(problem)).into_answer();
    headers.write(Policy::of_verdict(verdict), answer.headers_mut());
    answer
}
