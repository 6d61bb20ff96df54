//! Abuse: attempts in a short and a long window. Too many in either of them start a block.

mod blocks;
#[cfg(feature = "_redis")]
mod lease;
#[cfg(feature = "_redis")]
mod wire;

use std::time::Duration;

use blocks::Blocks;

use super::series::{NewUnits, Series, View, WindowAt};
use super::{Call, Refund, SharedState, Strategy};
use crate::clock::Timestamp;
use crate::decision::{AbuseDecision, Attempts, BlockScope, Decision, DecisionTime, NEVER};
use crate::error::TrypemaError;
use crate::units::{MAX_EXACT, window_micros};

/// The largest threshold. The state keeps each attempt up to the threshold with its time, so this bounds the
/// memory of a key.
const MAX_THRESHOLD: u64 = 10_000;

/// The attempt limiter with blocks; see the [module](super).
#[derive(Debug, Clone, Copy)]
pub struct Abuse;

/// A tier: a window, a threshold of attempts within it, and the length of the block that starts at the
/// threshold.
///
/// ```
/// use std::time::Duration;
/// use trypema::AbuseTier;
///
/// // The third attempt within a minute blocks for ten minutes.
/// assert!(AbuseTier::new(Duration::from_secs(60), 3, Duration::from_secs(600)).is_ok());
/// assert!(AbuseTier::new(Duration::from_secs(60), 0, Duration::from_secs(600)).is_err());
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbuseTier {
    window_us: u64,
    threshold: u64,
    block_us: u64,
}

impl AbuseTier {
    /// Returns a tier in which attempt number `threshold` within `window` is denied and starts a block of
    /// length `block`.
    pub fn new(window: Duration, threshold: u64, block: Duration) -> Result<Self, TrypemaError> {
        if threshold == 0 || threshold > MAX_THRESHOLD {
            return Err(TrypemaError::InvalidThreshold { given: threshold, max: MAX_THRESHOLD });
        }
        Ok(Self { window_us: window_micros(window)?, threshold, block_us: window_micros(block)? })
    }
}

/// The limit of the abuse strategy: a short and a long tier.
///
/// ```
/// use std::time::Duration;
/// use trypema::{AbuseLimit, AbuseTier};
///
/// let minute = AbuseTier::new(Duration::from_secs(60), 3, Duration::from_secs(600))?;
/// let hour = AbuseTier::new(Duration::from_secs(3600), 10, Duration::from_secs(86_400))?;
/// let limit = AbuseLimit::new(minute, hour).ignoring_attempts_while_blocked();
/// # let _ = limit;
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbuseLimit {
    temp: AbuseTier,
    long: AbuseTier,
    blocked_attempts: BlockedAttempts,
}

/// The effect of attempts during a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockedAttempts {
    /// They count. They can start the block of a tier that is not blocked yet, but do not lengthen a block.
    Count,
    /// They count, and each of them that reaches a threshold starts that tier's block again.
    Lengthen,
    /// They do not count.
    Ignore,
}

impl AbuseLimit {
    /// Returns a limit of the tiers `temp` and `long`. Attempts during a block count but do not lengthen it.
    /// If they reach the threshold of the other tier, they start the block of that tier.
    pub fn new(temp: AbuseTier, long: AbuseTier) -> Self {
        Self { temp, long, blocked_attempts: BlockedAttempts::Count }
    }

    /// Returns the same limit, except that an attempt during a block lengthens it if the attempt reaches the
    /// threshold again.
    #[must_use]
    pub fn lengthening_blocks(self) -> Self {
        Self { blocked_attempts: BlockedAttempts::Lengthen, ..self }
    }

    /// Returns the same limit, except that attempts during a block do not count.
    #[must_use]
    pub fn ignoring_attempts_while_blocked(self) -> Self {
        Self { blocked_attempts: BlockedAttempts::Ignore, ..self }
    }

    /// Returns the window of the tier with the lower threshold.
    pub fn window(&self) -> Duration {
        let first = if self.long.threshold < self.temp.threshold { self.long } else { self.temp };
        Duration::from_micros(first.window_us)
    }

    fn retention_us(&self) -> u64 {
        self.temp.window_us.max(self.long.window_us)
    }

    fn kept(&self) -> u64 {
        self.temp.threshold.max(self.long.threshold)
    }

    /// Returns the largest number of attempts that reaches no threshold in either window.
    fn allowed(&self) -> u64 {
        self.temp.threshold.min(self.long.threshold) - 1
    }

    fn window_at(&self, now: u64) -> WindowAt {
        WindowAt { now, window_us: self.retention_us() }
    }
}

/// The abuse strategy's state of a key.
#[derive(Debug, Clone, Default)]
pub struct AbuseState {
    attempts: Series,
    blocks: Blocks,
    /// The time of the last write.
    last: u64,
}

impl AbuseState {
    /// Returns the time of the last write, or 0 if nothing is remembered and the time does not matter.
    fn last(&self) -> u64 {
        if self.attempts.total() == 0 && self.blocks.is_none() { 0 } else { self.last }
    }

    /// Blocks for `for_us` from `now`, unless a block already lasts longer.
    pub(crate) fn block(&mut self, now: Timestamp, for_us: u64, scope: BlockScope) {
        let now = now.as_micros().max(self.last());
        self.blocks.extend(scope, now.saturating_add(for_us).min(MAX_EXACT));
        self.last = now;
    }

    /// Ends all blocks and forgets the attempts. Returns whether a block was in force.
    pub(crate) fn unblock(&mut self, now: Timestamp) -> bool {
        let was_blocked = !self.blocks.live(now.as_micros()).is_none();
        *self = Self::default();
        was_blocked
    }
}

/// The outcome of the abuse strategy.
#[derive(Debug, Clone, Copy)]
pub struct AbuseOutcome {
    is_admitted: bool,
    is_recording: bool,
    /// The time of the decision. It is the time of the last write if the clock has gone back since, by up to
    /// a window.
    at: u64,
    blocks: Blocks,
    not_before: u64,
    resets_at: u64,
    short_count: u64,
    long_count: u64,
    view: View,
}

impl SharedState<AbuseLimit> for AbuseState {
    fn condensed(&self, limit: &AbuseLimit, now: Timestamp) -> Self {
        let now = now.as_micros().max(self.last());
        let attempts = self.attempts.condensed(now, &[limit.temp.window_us, limit.long.window_us]);
        Self { attempts, blocks: self.blocks, last: self.last }
    }

    fn merge_blocks(&mut self, other: &Self) {
        self.blocks.extend(BlockScope::Temp, other.blocks.temp_ends_at);
        self.blocks.extend(BlockScope::Long, other.blocks.long_ends_at);
    }
}

impl Strategy for Abuse {
    const COUNTS_DENIALS: bool = true;
    const COUNTS_ATTEMPTS: bool = true;
    const AGAINST_POSTPAID: Option<&'static str> =
        Some("the strategy abuse counts attempts, which have no later cost");
    type Limit = AbuseLimit;
    type State = AbuseState;
    type Outcome = AbuseOutcome;
    type Decision<'l> = AbuseDecision;

    fn decide(limit: &AbuseLimit, state: &AbuseState, call: Call) -> AbuseOutcome {
        let current = StateAt::of(limit, state, call.now.as_micros());
        let is_counted = current.blocks.is_none() || limit.blocked_attempts != BlockedAttempts::Ignore;
        let is_recording = call.cost > 0 && is_counted;
        let recorded = if is_recording { call.cost } else { 0 };
        let count = |tier| current.view(state, tier).used.saturating_add(recorded).min(limit.kept());
        let (short_count, long_count) = (count(&limit.temp), count(&limit.long));
        let mut blocks = current.blocks;
        for (scope, tier, count) in
            [(BlockScope::Temp, &limit.temp, short_count), (BlockScope::Long, &limit.long, long_count)]
        {
            let may_start = !blocks.has(scope) || limit.blocked_attempts == BlockedAttempts::Lengthen;
            if is_recording && count >= tier.threshold && may_start {
                blocks.extend(scope, current.at + tier.block_us);
            }
        }
        let not_before = match blocks.in_force() {
            None => 0,
            Some(block) if call.cost == 0 => block.ends_at,
            Some(_) if call.cost > limit.allowed() => NEVER.as_micros(),
            // The attempts that this call records count against a repetition of it.
            Some(block) => [&limit.temp, &limit.long]
                .map(|tier| current.allowed_at(state, tier, RepeatedAttempt { recorded, cost: call.cost }))
                .into_iter()
                .fold(block.ends_at, u64::max),
        };
        let (at, view) = (current.at, current.attempts);
        let forgotten_at = if is_recording {
            at + limit.retention_us()
        } else {
            state.attempts.empty_at(limit.window_at(at), view)
        };
        AbuseOutcome {
            is_admitted: blocks.is_none(),
            is_recording,
            at,
            blocks,
            not_before,
            resets_at: blocks.ends_at().max(forgotten_at),
            short_count,
            long_count,
            view,
        }
    }

    fn is_admitted(outcome: &AbuseOutcome) -> bool {
        outcome.is_admitted
    }

    fn commit(limit: &AbuseLimit, state: &mut AbuseState, call: Call, outcome: &AbuseOutcome) {
        if !outcome.is_recording && !outcome.view.is_stepped_back {
            return;
        }
        let window = limit.window_at(outcome.at);
        if outcome.is_recording {
            // An attempt counts when it is made, so a later stamp is ignored.
            let new_units = NewUnits { stamp: outcome.at, group_us: 0, units: call.cost.min(limit.kept()) };
            state.attempts.record(window, outcome.view, new_units);
            state.attempts.keep_newest(limit.kept());
        } else {
            state.attempts.forget_expired(window, outcome.view);
        }
        state.blocks = outcome.blocks;
        state.last = outcome.at;
    }

    fn recorded_at(_: &AbuseLimit, outcome: &AbuseOutcome, _: Call) -> Timestamp {
        Timestamp::derived(outcome.at)
    }

    fn available(limit: &AbuseLimit, state: &AbuseState, call: Call) -> u64 {
        let seen = Self::decide(limit, state, call.with_cost(0));
        if !seen.is_admitted {
            return 0;
        }
        let short = (limit.temp.threshold - 1).saturating_sub(seen.short_count);
        let long = (limit.long.threshold - 1).saturating_sub(seen.long_count);
        short.min(long).min(call.cost)
    }

    fn refund(limit: &AbuseLimit, state: &mut AbuseState, refund: Refund) -> u64 {
        let now = refund.now.as_micros().max(state.last());
        super::absolute::refund_series(&mut state.attempts, limit.window_at(now), 0, refund)
    }

    fn retention_us(limit: &AbuseLimit) -> u64 {
        limit.retention_us()
    }

    fn fresh_from(state: &AbuseState) -> Timestamp {
        Timestamp::derived(state.attempts.fresh_from().max(state.blocks.ends_at()))
    }

    fn decision(limit: &AbuseLimit, outcome: AbuseOutcome, decided_at: DecisionTime) -> AbuseDecision {
        let short_left = (limit.temp.threshold - 1).saturating_sub(outcome.short_count);
        let long_left = (limit.long.threshold - 1).saturating_sub(outcome.long_count);
        let scope = outcome.blocks.in_force().map(|block| block.scope);
        let decided_at =
            if scope == Some(BlockScope::Long) { decided_at.in_long_block() } else { decided_at };
        let block_ends_at = Timestamp::derived(outcome.blocks.ends_at());
        let core = Decision {
            is_allowed: outcome.is_admitted,
            attempts: Some(Attempts::new(outcome.short_count, outcome.long_count, block_ends_at)),
            limit: limit.allowed(),
            remaining: if outcome.is_admitted { short_left.min(long_left) } else { 0 },
            not_before: Timestamp::derived(outcome.not_before),
            resets_at: Timestamp::derived(outcome.resets_at),
            decided_at,
        };
        AbuseDecision {
            core,
            scope,
            block_ends_at,
            short_count: outcome.short_count,
            long_count: outcome.long_count,
        }
    }

    #[inline]
    fn core(decision: &AbuseDecision) -> Decision {
        decision.core
    }
}

/// A denied attempt that is made again later.
#[derive(Clone, Copy)]
struct RepeatedAttempt {
    /// The attempts that the denied call recorded.
    recorded: u64,
    cost: u64,
}

/// The part of a state that is in force at the time `at`.
struct StateAt {
    at: u64,
    /// The blocks that have not ended.
    blocks: Blocks,
    /// The attempts in the longer window.
    attempts: View,
}

impl StateAt {
    fn of(limit: &AbuseLimit, state: &AbuseState, now: u64) -> Self {
        if state.last() > now + limit.retention_us() {
            // All history counts as happening now, and each block keeps its remaining time.
            let attempts = View::stepped_back(state.attempts.total());
            return Self { at: now, blocks: state.blocks.moved(state.last(), now), attempts };
        }
        let at = now.max(state.last());
        let attempts = state.attempts.view(limit.window_at(at));
        Self { at, blocks: state.blocks.live(at), attempts }
    }

    /// Returns the attempts in the window of `tier`.
    fn view(&self, state: &AbuseState, tier: &AbuseTier) -> View {
        if self.attempts.is_stepped_back {
            return self.attempts;
        }
        state.attempts.view(WindowAt { now: self.at, window_us: tier.window_us })
    }

    /// Returns the time from which a repeated attempt does not reach the threshold of `tier`.
    fn allowed_at(&self, state: &AbuseState, tier: &AbuseTier, repeated: RepeatedAttempt) -> u64 {
        let RepeatedAttempt { recorded, cost } = repeated;
        let window = WindowAt { now: self.at, window_us: tier.window_us };
        let view = self.view(state, tier);
        match (view.used + recorded + cost).saturating_sub(tier.threshold - 1) {
            0 => self.at,
            excess if excess <= view.used => state.attempts.leaves_at(window, view, excess),
            _ => self.at + tier.window_us,
        }
    }
}
