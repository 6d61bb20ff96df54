//! Measurements that need their own process: memory and the slowest call.

use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::{RateLimit, RateLimiter};

use crate::allocator::allocations;
use crate::contender::{Contender, Load, Visitor, visit};
use crate::keys;
use crate::measure::cpu_time;

/// Runs this program again with `arguments` and returns the number that it prints.
pub fn ask(arguments: &[&str]) -> Option<f64> {
    let program = std::env::current_exe().ok()?;
    let output = Command::new(program).args(arguments).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// Prints the resident bytes per key, for `keys` keys with one request each.
pub fn memory(contender: &str, keys: &str) -> ExitCode {
    let keys: u64 = keys.parse().expect("a number of keys");
    let bytes = visit(contender, Load::Slow, Fill(keys));
    println!("{:.1}", bytes / keys as f64);
    ExitCode::SUCCESS
}

struct Fill(u64);

impl Visitor for Fill {
    type Output = f64;

    fn visit<C: Contender>(self, contender: C) -> f64 {
        let before = resident_bytes();
        (0..self.0).for_each(|number| {
            contender.check(&keys::name(number));
        });
        resident_bytes() - before
    }
}

/// Prints the resident bytes per live bucket, for keys with `count` buckets each.
pub fn buckets(count: &str) -> ExitCode {
    let count: u64 = count.parse().expect("a number of buckets");
    let clock = Arc::new(ManualClock::default());
    let limiter = RateLimiter::builder().clock(clock.clone()).build().expect("valid options");
    let rate = RateLimit::try_from(1e6).expect("a valid rate");
    let names: Vec<String> = (0..1_000).map(keys::name).collect();
    let hit_all = || {
        for name in &names {
            limiter.local().absolute().inc(name, &rate, 1);
        }
    };
    hit_all();
    let before = resident_bytes();
    for _ in 1..count {
        clock.advance(Duration::from_millis(10));
        hit_all();
    }
    println!("{:.2}", (resident_bytes() - before) / ((count - 1) * names.len() as u64) as f64);
    ExitCode::SUCCESS
}

/// Prints the time that the slowest call takes of its thread, in microseconds, while a million keys are added.
pub fn growth(contender: &str) -> ExitCode {
    println!("{:.1}", visit(contender, Load::Slow, Grow));
    ExitCode::SUCCESS
}

struct Grow;

impl Visitor for Grow {
    type Output = f64;

    fn visit<C: Contender>(self, contender: C) -> f64 {
        let worst = (0..1_000_000).map(keys::name).map(|name| {
            cpu_time(|| {
                contender.check(&name);
            })
        });
        worst.max().unwrap_or_default().as_nanos() as f64 / 1_000.0
    }
}

/// Returns the number of allocations per check of a known key.
pub fn allocations_per_call(contender: &str, load: Load) -> f64 {
    visit(contender, load, Allocations)
}

struct Allocations;

impl Visitor for Allocations {
    type Output = f64;

    fn visit<C: Contender>(self, contender: C) -> f64 {
        let key = keys::name(7);
        (0..1_000).for_each(|_| {
            contender.check(&key);
        });
        let calls = 10_000;
        let count = allocations(|| {
            (0..calls).for_each(|_| {
                contender.check(&key);
            });
        });
        count as f64 / f64::from(calls)
    }
}

fn resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0.0);
    pages * 4_096.0
}
