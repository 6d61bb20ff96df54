//! Interleaved rounds and their medians.

use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::contender::{Contender, Load, Visitor, is_single_key, visit};
use crate::keys;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Effort<'a> {
    /// Fewer rounds, only for the columns whose title contains this text. No page is updated.
    Quick(&'a str),
    Full,
}

impl Effort<'_> {
    fn rounds(self) -> usize {
        if self == Effort::Full { 11 } else { 5 }
    }
}

/// One column of the table.
pub struct Workload {
    pub title: &'static str,
    pub load: Load,
    pub threads: usize,
    calls: Arc<Vec<String>>,
    /// The number of keys that exist before the measurement starts.
    known: u64,
    /// Whether the caller does other work between checks.
    is_working: bool,
}

pub fn workloads() -> Vec<Workload> {
    let hot = Arc::new(vec![keys::name(7); 100_000]);
    let uniform = Arc::new(keys::uniform(100_000, 1_000_000));
    let zipf = Arc::new(keys::zipf(1_000_000, 1_000_000));
    let column = |title: &'static str, load, calls: &Arc<Vec<String>>, known| Workload {
        title,
        load,
        threads: if title.starts_with("2 threads") { 2 } else { 1 },
        calls: Arc::clone(calls),
        known,
        is_working: title.ends_with("other work"),
    };
    vec![
        column("hot key, allowed", Load::Plenty, &hot, 1),
        column("hot key, idle", Load::Idle, &hot, 1),
        column("hot key, denied", Load::Scarce, &hot, 1),
        column("hot key, other work", Load::Plenty, &hot, 1),
        column("100k keys, busy", Load::Slow, &uniform, 100_000),
        column("100k keys, idle", Load::Idle, &uniform, 100_000),
        column("100k keys, near the limit", Load::Near, &uniform, 100_000),
        column("100k keys, other work", Load::Slow, &uniform, 100_000),
        column("1M keys, busy", Load::Slow, &zipf, 1_000_000),
        column("1M keys, idle", Load::Idle, &zipf, 1_000_000),
        column("2 threads, hot", Load::Plenty, &hot, 1),
        column("2 threads, 1M keys", Load::Slow, &zipf, 1_000_000),
    ]
}

/// Returns the nanoseconds per check of each contender in each round. In a round, the contenders take turns.
pub fn column(workload: &Workload, names: &[&str], effort: Effort<'_>) -> Vec<Vec<f64>> {
    let takes_part = |name: &&str| workload.known == 1 && workload.threads == 1 || !is_single_key(name);
    let mut runners: Vec<Option<Box<dyn FnMut() -> f64>>> = names
        .iter()
        .map(|name| takes_part(name).then(|| visit(name, workload.load, Prepare { name, workload })))
        .collect();
    let mut rounds: Vec<Vec<f64>> = vec![Vec::new(); names.len()];
    for _ in 0..effort.rounds() {
        for (runner, times) in runners.iter_mut().zip(&mut rounds) {
            if let Some(run) = runner {
                times.push(run());
            }
        }
    }
    rounds
}

/// Checks `count` keys of the workload with this title, for a tool that counts instructions.
pub fn calls(name: &str, title: &str, count: usize) {
    if let Some(workload) = workloads().iter().find(|workload| workload.title == title) {
        visit(name, workload.load, Count { workload, count });
    }
}

struct Count<'a> {
    workload: &'a Workload,
    count: usize,
}

impl Visitor for Count<'_> {
    type Output = ();

    fn visit<C: Contender>(self, contender: C) {
        self.workload.make_known(&contender);
        let calls = &self.workload.calls;
        for start in (0..self.count).step_by(calls.len()) {
            run(&contender, &calls[..calls.len().min(self.count - start)], 1);
        }
    }
}

pub fn median(mut times: Vec<f64>) -> Option<f64> {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

impl Workload {
    /// Checks each key several times, so that no bucket is full again before the measurement ends.
    fn make_known<C: Contender>(&self, contender: &C) {
        for _ in 0..3 {
            for number in 0..self.known {
                contender.check(&keys::name(if self.known == 1 { 7 } else { number }));
            }
        }
    }
}

struct Prepare<'a> {
    name: &'a str,
    workload: &'a Workload,
}

impl Visitor for Prepare<'_> {
    type Output = Box<dyn FnMut() -> f64>;

    fn visit<C: Contender>(self, contender: C) -> Self::Output {
        self.workload.make_known(&contender);
        let Workload { threads, calls, known, is_working, .. } = self.workload;
        // A contender whose check takes microseconds is measured with fewer checks.
        let share = if self.name == "limitador" { 20 } else { 1 };
        let (threads, count, calls) = (*threads, calls.len() / share, Arc::clone(calls));
        let contender = Arc::new(contender);
        // A round with one hot key is short, so it is repeated several times.
        let repeat = if *known == 1 { 10 / share.min(10) } else { 1 };
        if threads > 1 {
            return Box::new(move || together(&contender, &calls, [threads, count, repeat]));
        }
        if *is_working {
            return Box::new(move || {
                let without = cpu_time(|| work_between(&calls[..count], repeat, |_| true));
                let with = cpu_time(|| work_between(&calls[..count], repeat, |key| contender.check(key)));
                with.saturating_sub(without).as_nanos() as f64 / (count * repeat) as f64
            });
        }
        Box::new(move || {
            let took = cpu_time(|| run(contender.as_ref(), &calls[..count], repeat));
            took.as_nanos() as f64 / (count * repeat) as f64
        })
    }
}

/// Returns the time that this thread spends on `work`. Other processes do not count.
pub fn cpu_time(work: impl FnOnce()) -> Duration {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let start = now();
    work();
    now() - start
}

#[inline(never)]
fn run<C: Contender>(contender: &C, calls: &[String], repeat: usize) {
    for _ in 0..repeat {
        for key in calls {
            black_box(contender.check(black_box(key)));
        }
    }
}

/// Runs `check` on each key, and in between what a request might do: some arithmetic, of which each step needs the last,
/// on 64 KiB of memory.
#[inline(never)]
fn work_between(calls: &[String], repeat: usize, check: impl Fn(&String) -> bool) {
    let mut memory = vec![1_u64; 8_192];
    let mut state = 1_u64;
    for _ in 0..repeat {
        for key in calls {
            for _ in 0..50 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).rotate_left(29);
                let cell = &mut memory[(state % 8_192) as usize];
                *cell = cell.wrapping_add(state);
                state ^= *cell;
            }
            state ^= u64::from(black_box(check(black_box(key))));
        }
    }
    black_box(state);
}

fn together<C: Contender>(contender: &Arc<C>, calls: &Arc<Vec<String>>, sizes: [usize; 3]) -> f64 {
    let [threads, count, repeat] = sizes;
    let gate = Arc::new(Barrier::new(threads + 1));
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            let (contender, calls, gate) = (Arc::clone(contender), Arc::clone(calls), Arc::clone(&gate));
            std::thread::spawn(move || {
                // Each thread starts at a different position of the same sequence.
                let (late, early) = calls[..count].split_at(count * thread / threads);
                gate.wait();
                run(contender.as_ref(), early, repeat);
                run(contender.as_ref(), late, repeat);
            })
        })
        .collect();
    gate.wait();
    let start = Instant::now();
    for worker in workers {
        worker.join().expect("a worker that ends");
    }
    start.elapsed().as_nanos() as f64 / (threads * count * repeat) as f64
}
