//! The work that an engine could not do in the store, because the store failed. One task per engine does it as soon as
//! the store answers again.
//!
//! - It undoes attempts to reserve whose answer was lost. Their callers were told that the store failed, so nobody
//!   will settle what the attempts may have reserved. It tries until the units can no longer be given back.
//!   `strategy/reservations/attempts.rs` says why this takes no units from a request that was allowed.
//! - It brings the reservations to the store that this process keeps (`kept.rs`).

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::background::{FIRST_PAUSE, LONGEST_PAUSE};
use super::ending::Spawner;
use super::kept::{KeptName, KeptPart, KeptParts, MAX_KEPT, PartMoved};
use crate::check::{Check, CheckResult, Receipts, TakeRequest};
use crate::clock::Timestamp;
use crate::error::TrypemaError;
use crate::reservation::{ReserveRequest, ReserveResponse, SettleRequest, SettleResult, SettleStatus};
use crate::rules::engine::Engine;
#[cfg(feature = "unstable-testkit")]
use crate::rules::plan::Plan;
#[cfg(feature = "unstable-testkit")]
use crate::rules::request::Request;
#[cfg(feature = "unstable-testkit")]
use crate::rules::reservation::ReserveOptions;
use crate::rules::set::RuleSet;
use crate::strategy::reservations::{ReservationId, ReserveAttempt};
use crate::waiting::Sleep;

/// The most counters at which something is to be undone. Their names take 16 MB at most.
const MAX_PENDING: usize = 16_384;

/// The most counters in one call to the store.
const BATCH: usize = 64;

/// The shortest time for which the store remembers an undone attempt: longer than any request is under way.
const SHORTEST_MARK: Duration = Duration::from_secs(60);

/// The work of an engine that waits for the store, and what became of it: numbers of counters. Returned by
/// [`Engine::backlog`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BacklogCounts {
    /// Attempts to reserve that are to be undone, because their answer was lost.
    pub to_undo: usize,
    /// Attempts that were undone. Most had reserved nothing.
    pub undone: u64,
    /// Attempts that were given up, because too many were to be undone or the store failed for too long. What they
    /// have reserved stays counted.
    pub given_up: u64,
    /// Reservations that this process keeps, because it made them without the store.
    pub kept: usize,
    /// Reservations that were kept and that the store knows now.
    pub moved: u64,
}

/// An attempt that is to be undone at one counter.
#[derive(Debug, Clone)]
pub(super) struct PendingUndo {
    pub(super) key: Box<str>,
    pub(super) attempt: ReserveAttempt,
    /// The time for which the reservation lasts.
    pub(super) ttl: Duration,
    /// Whether the store has answered the attempt. Otherwise it may still arrive.
    pub(super) is_answered: bool,
}

/// The work of an engine that waits for the store.
#[derive(Debug, Default)]
pub(in crate::rules) struct Backlog {
    state: Mutex<State>,
    done: AtomicU64,
    given_up: AtomicU64,
    moved: AtomicU64,
    /// The number of parts in `kept` and `settled`, so that nobody takes the lock when there are none.
    known: AtomicUsize,
    /// The number of attempts under ids that this engine drew.
    attempts: AtomicU64,
    /// The number of the next attempt, if a test has chosen it.
    #[cfg(feature = "unstable-testkit")]
    next_attempt: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// The reservations that this process keeps.
    pub(super) kept: KeptParts,
    /// The parts that ended here and that the store need not learn of, with their expiry: a settlement that is
    /// repeated until then is recognised.
    pub(super) settled: HashMap<KeptName, Timestamp>,
    /// The place of the next one to bring to the store.
    next_kept: usize,
    /// Each with the time at which its units can no longer be given back.
    queue: VecDeque<(PendingUndo, Timestamp)>,
    /// The number of those that the task has taken from the queue and not undone yet.
    in_flight: usize,
    /// Whether a task undoes them.
    is_running: bool,
}

/// The work of one step.
struct BacklogStep {
    undos: Vec<(PendingUndo, Timestamp)>,
    kept: Vec<KeptName>,
}

impl Backlog {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pending(&self) -> usize {
        let state = self.lock();
        state.queue.len() + state.in_flight
    }

    /// Returns an attempt with a number that no other attempt under this id has, in any process.
    pub(super) fn new_attempt(&self, id: ReservationId) -> ReserveAttempt {
        #[cfg(feature = "unstable-testkit")]
        match self.next_attempt.swap(0, Ordering::Relaxed) {
            0 => {}
            number => return ReserveAttempt { id, number },
        }
        // 0 is no attempt. Only this engine makes attempts under an id that it drew.
        let number = match id.is_chosen() {
            true => crate::random::number().max(1),
            false => self.attempts.fetch_add(1, Ordering::Relaxed) + 1,
        };
        ReserveAttempt { id, number }
    }

    /// Returns what is to be done next in the store; `None` if there is nothing, and the task ends.
    fn next_batch(&self, now: Timestamp) -> Option<BacklogStep> {
        let mut state = self.lock();
        let before = state.queue.len();
        state.queue.retain(|(_, give_up_at)| now < *give_up_at);
        self.given_up.fetch_add((before - state.queue.len()) as u64, Ordering::Relaxed);
        let count = state.queue.len().min(BATCH);
        if count == 0 && state.kept.is_empty() {
            state.is_running = false;
            return None;
        }
        state.in_flight = count;
        let undos = state.queue.drain(..count).collect();
        // Parts that the store does not take keep no others waiting.
        let start = state.next_kept.checked_rem(state.kept.len()).unwrap_or(0);
        state.next_kept = start + BATCH;
        let kept = state.kept.keys().cycle().skip(start).take(BATCH.min(state.kept.len())).cloned().collect();
        Some(BacklogStep { undos, kept })
    }

    /// Whether this process knows a part that the store may not know.
    pub(super) fn is_keeping(&self) -> bool {
        self.known.load(Ordering::Acquire) > 0
    }

    fn count_known(&self, state: &State) {
        self.known.store(state.kept.len() + state.settled.len(), Ordering::Release);
    }

    /// Returns a part that is kept; `None` if it is no longer.
    pub(super) fn kept_part(&self, name: &KeptName) -> Option<KeptPart> {
        self.lock().kept.get(name).cloned()
    }

    /// Forgets a part that the store knows now, or need not know, unless it was settled or renewed here meanwhile.
    pub(super) fn end_move(&self, name: &KeptName, part: &KeptPart, moved: PartMoved, now: Timestamp) {
        let mut state = self.lock();
        if state.kept.get(name) != Some(part) {
            return;
        }
        state.kept.remove(name);
        state.settled.retain(|_, expires_at| now < *expires_at);
        if moved == PartMoved::Unneeded && part.is_settled_by_id() && now < part.expires_at {
            state.settled.insert(name.clone(), part.expires_at);
        }
        self.count_known(&state);
        self.moved.fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps parts of a reservation. Returns whether a task has to be started.
    fn keep(&self, parts: Vec<(KeptName, KeptPart)>, now: Timestamp) -> bool {
        let mut state = self.lock();
        for (name, part) in parts {
            let ended = match state.kept.get_mut(&name) {
                Some(known) => known.repeat(part, now),
                None => {
                    state.kept.insert(name, part);
                    continue;
                }
            };
            if let Some(ended) = ended {
                state.kept.insert((ended.name.id, name.1), ended);
            }
        }
        self.count_known(&state);
        let is_needed = !state.is_running && !state.kept.is_empty();
        state.is_running |= is_needed;
        is_needed
    }

    /// Returns whether the failure policy issues receipts for so many more parts, because they can be kept. Otherwise it
    /// charges them like takes.
    pub(super) fn receipts_for(&self, parts: usize) -> Receipts {
        let state = self.lock();
        match state.kept.len() + state.settled.len() + parts <= MAX_KEPT {
            true => Receipts::Wanted,
            false => Receipts::Unwanted,
        }
    }

    /// Adds as many as there is room for. Returns whether a task has to be started.
    fn add(&self, undos: impl Iterator<Item = (PendingUndo, Timestamp)>) -> bool {
        let mut state = self.lock();
        for undo in undos {
            if state.queue.len() < MAX_PENDING {
                state.queue.push_back(undo);
            } else {
                self.given_up.fetch_add(1, Ordering::Relaxed);
            }
        }
        let is_needed = !state.is_running && !state.queue.is_empty();
        state.is_running |= is_needed;
        is_needed
    }
}

impl Engine {
    /// Returns the numbers of the work that waits for the store: see [`BacklogCounts`].
    pub fn backlog(&self) -> BacklogCounts {
        let Backlog { done, given_up, moved, .. } = &*self.backlog;
        BacklogCounts {
            to_undo: self.backlog.pending(),
            undone: done.load(Ordering::Relaxed),
            given_up: given_up.load(Ordering::Relaxed),
            kept: self.backlog.lock().kept.len(),
            moved: moved.load(Ordering::Relaxed),
        }
    }

    /// Undoes attempts that the store has answered. Those that fail are undone later.
    pub(super) async fn undo(self: &Arc<Self>, undos: Vec<PendingUndo>) {
        if undos.is_empty() {
            return;
        }
        let results = self.try_undo(&undos).await;
        let failed = undos.into_iter().zip(results).filter(|(_, is_done)| !is_done);
        self.undo_later(failed.map(|(undo, _)| undo).collect());
    }

    /// Undoes attempts in the background.
    pub(super) fn undo_later(self: &Arc<Self>, undos: Vec<PendingUndo>) {
        if undos.is_empty() {
            return;
        }
        let now = self.clock().now();
        let with_end = |undo: PendingUndo| {
            let give_up_at = now + undo.marked_for();
            (undo, give_up_at)
        };
        if self.backlog.add(undos.into_iter().map(with_end)) {
            self.catch_up();
        }
    }

    /// Keeps parts of a reservation until the store knows them.
    pub(super) fn keep(self: &Arc<Self>, parts: Vec<(KeptName, KeptPart)>) {
        if self.backlog.keep(parts, self.clock().now()) {
            self.catch_up();
        }
    }

    /// Starts the task that does in the store what could not be done while it was unreachable.
    fn catch_up(self: &Arc<Self>) {
        let (engine, backlog) = (Arc::clone(self), Arc::clone(&self.backlog));
        let running = RunningTask { backlog, has_ended: false };
        let spawner: Spawner = self.spawner();
        self.run_counted(&spawner, async move { engine.work_off_backlog(running).await });
    }

    async fn work_off_backlog(self: Arc<Self>, mut running: RunningTask) {
        let mut longest = FIRST_PAUSE;
        while let Some(BacklogStep { undos: batch, kept }) = running.backlog.next_batch(self.clock().now()) {
            let undos: Vec<PendingUndo> = batch.iter().map(|(undo, _)| undo.clone()).collect();
            let mut returned = ReturnedBatch { backlog: &running.backlog, batch };
            let moved = self.move_kept(&kept).await;
            let results = self.try_undo(&undos).await;
            let is_stuck = moved == 0 && !results.iter().any(|is_done| *is_done);
            let mut results = results.into_iter();
            returned.batch.retain(|_| results.next() != Some(true));
            drop(returned);
            if is_stuck {
                let pause = longest / 2 + crate::jitter::below(longest / 2);
                Sleep::until(self.clock(), self.clock().now() + pause).await;
            }
            longest = if is_stuck { (longest * 2).min(LONGEST_PAUSE) } else { FIRST_PAUSE };
        }
        running.has_ended = true;
    }

    /// Undoes attempts, each on its own. Returns, for each, whether nothing is left to do.
    async fn try_undo(&self, undos: &[PendingUndo]) -> Vec<bool> {
        let set = self.set.load_full();
        let requests: Vec<SettleRequest<'_>> = undos.iter().filter_map(|undo| undo.request(&set)).collect();
        let provider = self.provider();
        let mut results = provider.each(&requests, provider.deadline()).wait().await.into_iter();
        let is_done = |undo: &PendingUndo| {
            // A rule that is gone may come back, and count on.
            undo.request(&set).is_some()
                && results.next().is_some_and(|result| self.note_undone(undo, &result))
        };
        undos.iter().map(is_done).collect()
    }

    /// Notes the result of undoing an attempt. Returns whether nothing is left to do.
    fn note_undone(&self, undo: &PendingUndo, result: &SettleResult) -> bool {
        let is_done = result.as_ref().is_ok_and(|settled| settled.status != SettleStatus::NoRoom);
        if is_done {
            self.backlog.done.fetch_add(1, Ordering::Relaxed);
        }
        if result.as_ref().is_ok_and(|settled| settled.refunded > 0) {
            self.waitlist.release(&undo.key);
        }
        is_done
    }
}

/// For tests of attempts that are late, lost or repeated.
#[cfg(feature = "unstable-testkit")]
#[doc(hidden)]
impl Engine {
    /// Gives the next attempt to reserve this number.
    pub fn number_next_attempt(&self, number: u64) {
        self.backlog.next_attempt.store(number, Ordering::Relaxed);
    }

    /// Undoes an attempt whose answer was lost, at every counter of its request.
    pub async fn undo_attempt(&self, request: &Request<'_>, options: &ReserveOptions, number: u64) -> bool {
        let Ok(plan) = Plan::for_reservation(self.set.load_full(), request) else { return false };
        let attempt = ReserveAttempt { id: options.name(request).id, number };
        let undo = |check: &Check<'_>| PendingUndo {
            key: check.key.into(),
            attempt,
            ttl: options.ttl,
            is_answered: false,
        };
        let undos: Vec<PendingUndo> = plan.all_checks().checks.iter().map(undo).collect();
        self.try_undo(&undos).await.into_iter().all(|is_done| is_done)
    }
}

impl PendingUndo {
    /// Returns an undo for each counter whose store may have made a reservation without an answer.
    pub(super) fn of_lost(request: ReserveRequest<'_>, response: &ReserveResponse) -> Vec<Self> {
        let TakeRequest { checks, independent, .. } = request.take;
        let failed = response.failures.iter().filter(|failed| failed.error.is_outcome_unknown());
        let failed = failed.filter_map(|failed| checks.get(failed.index));
        let is_unknown = |result: &CheckResult| result.as_ref().is_err_and(TrypemaError::is_outcome_unknown);
        let independent = independent.iter().zip(&response.independent);
        let independent = independent.filter(|(_, result)| is_unknown(result)).map(|(check, _)| check);
        failed.chain(independent).map(|check| Self::lost(check, request)).collect()
    }

    pub(super) fn answered(check: &Check<'_>, request: ReserveRequest<'_>) -> Self {
        Self { is_answered: true, ..Self::lost(check, request) }
    }

    fn lost(check: &Check<'_>, request: ReserveRequest<'_>) -> Self {
        Self { key: check.key.into(), attempt: request.attempt(), ttl: request.ttl, is_answered: false }
    }

    /// Returns the time for which the store remembers the attempt, and for which undoing it makes a difference.
    fn marked_for(&self) -> Duration {
        self.ttl.max(SHORTEST_MARK)
    }

    /// Returns `None` if no rule has the counter any more.
    fn request<'a>(&'a self, set: &'a RuleSet) -> Option<SettleRequest<'a>> {
        let limit = set.rule_of_counter(&self.key)?.limit_of(&self.key);
        let marked_for = if self.is_answered { Duration::ZERO } else { self.marked_for() };
        Some(SettleRequest::undo(Check::new(&self.key, limit, 0), self.attempt, marked_for))
    }
}

/// The task that undoes attempts. If its runtime ends, the next attempt to undo starts another one.
struct RunningTask {
    backlog: Arc<Backlog>,
    /// Whether it has said so itself, and another one may be running.
    has_ended: bool,
}

impl Drop for RunningTask {
    fn drop(&mut self) {
        if !self.has_ended {
            self.backlog.lock().is_running = false;
        }
    }
}

/// Returns attempts that a call to the store did not undo to the queue, also if the call is cancelled.
struct ReturnedBatch<'u> {
    backlog: &'u Backlog,
    batch: Vec<(PendingUndo, Timestamp)>,
}

impl Drop for ReturnedBatch<'_> {
    fn drop(&mut self) {
        let mut state = self.backlog.lock();
        state.in_flight = 0;
        state.queue.extend(self.batch.drain(..));
    }
}
