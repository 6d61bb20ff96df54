//! Abuse: attempts in a short and a long window, and blocks that outlast them.

mod library;

use trypema::{AbuseLimit, BlockScope};

use super::{Ask, Model, Origin, Refund, Taken, first_moment, wait_until};
use crate::random::Random;
use crate::subject::{Answer, Detail, Wait};

/// A window, its threshold of attempts, and the duration of its block.
#[derive(Debug, Clone, Copy)]
pub struct Tier {
    /// The window.
    pub window_us: u64,
    /// The number of attempts that blocks. The attempt that reaches it is denied.
    pub threshold: u64,
    /// The duration of the block.
    pub block_us: u64,
}

/// Both tiers.
#[derive(Debug, Clone, Copy)]
pub struct AttemptLimit {
    /// The short tier.
    pub temp: Tier,
    /// The long tier.
    pub long: Tier,
    /// The effect of attempts during a block.
    pub while_blocked: WhileBlocked,
}

/// The effect of attempts during a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhileBlocked {
    /// They count. A tier that is not blocked yet is blocked when its threshold is reached.
    Count,
    /// They count, and a threshold that is reached restarts the block.
    Lengthen,
    /// They are denied and not counted.
    Ignore,
}

impl WhileBlocked {
    /// Returns `limit` with this setting.
    pub fn apply(self, limit: AbuseLimit) -> AbuseLimit {
        match self {
            Self::Count => limit,
            Self::Lengthen => limit.lengthening_blocks(),
            Self::Ignore => limit.ignoring_attempts_while_blocked(),
        }
    }
}

impl AttemptLimit {
    fn tiers(&self) -> [(BlockScope, Tier); 2] {
        [(BlockScope::Temp, self.temp), (BlockScope::Long, self.long)]
    }

    fn longest_window(&self) -> i64 {
        self.temp.window_us.max(self.long.window_us) as i64
    }

    /// Returns the maximum number of attempts that are kept.
    fn kept(&self) -> u64 {
        self.temp.threshold.max(self.long.threshold)
    }

    /// Returns the maximum number of attempts that are allowed.
    fn allowed(&self) -> u64 {
        self.temp.threshold.min(self.long.threshold) - 1
    }
}

#[derive(Debug, Clone, Copy)]
struct Block {
    ends_at: i64,
    scope: BlockScope,
}

/// The attempts of one key.
#[derive(Debug, Clone, Default)]
pub struct AbuseModel {
    /// The times of the attempts, the oldest first.
    attempts: Vec<i64>,
    /// The end of the block of the short and of the long tier.
    blocks_end: [Option<i64>; 2],
    /// The time of the last write.
    last: i64,
}

impl AbuseModel {
    /// Repairs the state after the clock went back by more than the longest window: all attempts move to
    /// `now`, and blocks keep their remaining duration.
    fn repair(&mut self, limit: &AttemptLimit, now: i64) {
        if self.last > now + limit.longest_window() {
            self.attempts.fill(now);
            for ends_at in self.blocks_end.iter_mut().flatten() {
                *ends_at = now + (*ends_at - self.last);
            }
            self.last = now;
        }
    }

    /// Returns the block in force: the one that ends last, and the long one if both end together.
    fn block_at(&self, now: i64) -> Option<Block> {
        let scopes = [BlockScope::Temp, BlockScope::Long];
        let blocks = scopes.into_iter().zip(self.blocks_end).filter_map(|(scope, ends_at)| {
            ends_at.filter(|ends_at| *ends_at > now).map(|ends_at| Block { ends_at, scope })
        });
        blocks.max_by_key(|block| block.ends_at)
    }

    fn count(&self, window_us: u64, now: i64) -> u64 {
        let live = self.attempts.iter().filter(|at| **at + window_us as i64 > now);
        live.count() as u64
    }

    fn drop_expired(&mut self, limit: &AttemptLimit, now: i64) {
        let window_us = limit.longest_window();
        self.attempts.retain(|at| at + window_us > now);
    }

    /// Counts every unit as an attempt. Only the newest attempts are kept.
    fn record(&mut self, limit: &AttemptLimit, now: i64, cost: u64) {
        self.drop_expired(limit, now);
        for _ in 0..cost.min(limit.kept()) {
            self.attempts.push(now);
        }
        let surplus = self.attempts.len().saturating_sub(limit.kept() as usize);
        self.attempts.drain(..surplus);
        self.blocks_end = self.blocks_end.map(|ends_at| ends_at.filter(|ends_at| *ends_at > now));
        self.last = now;
    }

    /// Blocks every tier whose threshold is reached. A block in force is only extended if `while_blocked`
    /// is `Lengthen`.
    fn block_if_reached(&mut self, limit: &AttemptLimit, now: i64) {
        for (position, (_, tier)) in limit.tiers().into_iter().enumerate() {
            let is_reached = self.count(tier.window_us, now) >= tier.threshold;
            let ends_at = now + tier.block_us as i64;
            match self.blocks_end[position] {
                Some(held) if limit.while_blocked == WhileBlocked::Lengthen && is_reached => {
                    self.blocks_end[position] = Some(held.max(ends_at));
                }
                None if is_reached => self.blocks_end[position] = Some(ends_at),
                _ => {}
            }
        }
    }

    /// Whether `cost` more attempts at `now` reach no threshold, and no block is in force.
    fn is_free(&self, limit: &AttemptLimit, now: i64, cost: u64) -> bool {
        let is_below = |(_, tier): (BlockScope, Tier)| {
            self.count(tier.window_us, now).saturating_add(cost) < tier.threshold
        };
        self.block_at(now).is_none() && (cost == 0 || limit.tiers().into_iter().all(is_below))
    }

    /// Returns the time from which no attempt and no block counts any more.
    fn all_over_at(&self, limit: &AttemptLimit, now: i64) -> i64 {
        let counts = self.attempts.last().filter(|at| *at + limit.longest_window() > now);
        let forgotten_at = counts.map_or(0, |at| at + limit.longest_window());
        let block_ends_at = self.block_at(now).map_or(0, |block| block.ends_at);
        forgotten_at.max(block_ends_at)
    }

    fn wait(&self, limit: &AttemptLimit, now: i64, ask: Ask) -> Wait {
        if ask.cost > limit.allowed() {
            return Wait::Never;
        }
        let free_from = first_moment(now, self.all_over_at(limit, now).max(now), |moment| {
            self.is_free(limit, moment, ask.cost)
        });
        wait_until(ask.now, Some(free_from))
    }
}

impl Model for AbuseModel {
    const NAME: &'static str = "abuse";
    type Limit = AttemptLimit;

    fn take(&mut self, limit: &AttemptLimit, ask: Ask) -> Taken {
        self.repair(limit, ask.now);
        let now = ask.now.max(self.last);
        let is_allowed = self.is_free(limit, now, ask.cost);
        let counts = self.block_at(now).is_none() || limit.while_blocked != WhileBlocked::Ignore;
        if ask.cost > 0 && counts {
            self.record(limit, now, ask.cost);
            self.block_if_reached(limit, now);
        }
        let wait = if is_allowed { Wait::Micros(0) } else { self.wait(limit, now, ask) };
        let block = self.block_at(now);
        let left = |(_, tier): (BlockScope, Tier)| {
            (tier.threshold - 1).saturating_sub(self.count(tier.window_us, now))
        };
        let remaining = limit.tiers().into_iter().map(left).min().unwrap_or(0);
        let answer = Answer {
            is_allowed,
            limit: limit.allowed(),
            remaining: if block.is_some() { 0 } else { remaining },
            wait,
            reset_us: (self.all_over_at(limit, now) - ask.now).max(0) as u64,
            detail: Detail::Abuse {
                scope: block.map(|block| block.scope),
                short_count: self.count(limit.temp.window_us, now).min(limit.kept()),
                long_count: self.count(limit.long.window_us, now).min(limit.kept()),
                block_us: block.map_or(0, |block| (block.ends_at - ask.now) as u64),
            },
        };
        Taken { answer, recorded: now, units: ask.cost, origin: Origin::default() }
    }

    fn fits(&self, limit: &AttemptLimit, ask: Ask) -> u64 {
        let nothing = self.peek(limit, ask.costing(0));
        nothing.remaining.min(ask.cost)
    }

    fn refund(&mut self, limit: &AttemptLimit, refund: Refund) -> u64 {
        self.drop_expired(limit, refund.now.max(self.last));
        let mut left = refund.units;
        self.attempts.retain(|at| {
            let is_meant = refund.recorded.is_none_or(|moment| moment == *at);
            let is_given_back = left > 0 && is_meant;
            left -= u64::from(is_given_back);
            !is_given_back
        });
        if self.attempts.is_empty() && self.blocks_end == [None; 2] {
            // An empty state forgets the time of the last write as well.
            self.last = 0;
        }
        refund.units - left
    }

    fn memory_us(limit: &AttemptLimit) -> i64 {
        limit.longest_window()
    }

    fn random_limit(random: &mut Random) -> AttemptLimit {
        let windows = [1, 10, 1_000_000, 1_000_000, 60_000_000, 3_600_000_000];
        let blocks = [1, 999_999, 1_000_000, 600_000_000, 86_400_000_000];
        let mut tier = || Tier {
            window_us: random.pick(&windows),
            threshold: random.pick(&[1, 2, 3, 3, 5, 10, 40]),
            block_us: random.pick(&blocks),
        };
        let (temp, long) = (tier(), tier());
        AttemptLimit {
            temp,
            long,
            while_blocked: random.pick(&[
                WhileBlocked::Count,
                WhileBlocked::Count,
                WhileBlocked::Lengthen,
                WhileBlocked::Ignore,
            ]),
        }
    }

    fn spans_us(limit: &AttemptLimit) -> Vec<u64> {
        let mut spans =
            vec![limit.temp.window_us, limit.long.window_us, limit.temp.block_us, limit.long.block_us];
        spans.sort_unstable();
        spans
    }

    fn capacity(limit: &AttemptLimit) -> u64 {
        limit.allowed()
    }
}
