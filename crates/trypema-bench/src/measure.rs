//! Interleaved rounds and their medians.

use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

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
        if self == Effort::Full { 9 } else { 5 }
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
}

pub fn workloads() -> Vec<Workload> {
    let hot = Arc::new(vec![keys::name(7); 100_000]);
    let uniform = Arc::new(keys::uniform(100_000, 1_000_000));
    let zipf = Arc::new(keys::zipf(1_000_000, 1_000_000));
    let column = |title, load, threads, calls: &Arc<Vec<String>>, known| Workload {
        title,
        load,
        threads,
        calls: Arc::clone(calls),
        known,
    };
    vec![
        column("hot key, allowed", Load::Plenty, 1, &hot, 1),
        column("hot key, full bucket", Load::Full, 1, &hot, 1),
        column("hot key, denied", Load::Scarce, 1, &hot, 1),
        column("100k keys", Load::Slow, 1, &uniform, 100_000),
        column("1M keys, Zipf", Load::Slow, 1, &zipf, 1_000_000),
        column("2 threads, hot", Load::Plenty, 2, &hot, 1),
        column("2 threads, 1M Zipf", Load::Slow, 2, &zipf, 1_000_000),
    ]
}

/// Returns the wall time per check in nanoseconds. With two threads, the checks of both are counted.
pub fn column(workload: &Workload, names: &[&str], effort: Effort<'_>) -> Vec<Option<f64>> {
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
    rounds.into_iter().map(median).collect()
}

pub fn median(mut times: Vec<f64>) -> Option<f64> {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

struct Prepare<'a> {
    name: &'a str,
    workload: &'a Workload,
}

impl Visitor for Prepare<'_> {
    type Output = Box<dyn FnMut() -> f64>;

    fn visit<C: Contender>(self, contender: C) -> Self::Output {
        let Workload { threads, calls, known, .. } = self.workload;
        // Several checks of each key, so that no bucket is full again before the measurement ends.
        for _ in 0..3 {
            for number in 0..*known {
                contender.check(&keys::name(if *known == 1 { 7 } else { number }));
            }
        }
        // A contender whose check takes microseconds is measured with fewer checks.
        let share = if self.name == "limitador" { 20 } else { 1 };
        let (threads, count, calls) = (*threads, calls.len() / share, Arc::clone(calls));
        let contender = Arc::new(contender);
        // A round with one hot key is short, so it is repeated several times.
        let repeat = if *known == 1 { 10 / share.min(10) } else { 1 };
        if threads == 1 {
            return Box::new(move || {
                let took = run(contender.as_ref(), &calls[..count], repeat);
                took.as_nanos() as f64 / (count * repeat) as f64
            });
        }
        Box::new(move || together(&contender, &calls, [threads, count, repeat]))
    }
}

#[inline(never)]
fn run<C: Contender>(contender: &C, calls: &[String], repeat: usize) -> Duration {
    let start = Instant::now();
    for _ in 0..repeat {
        for key in calls {
            black_box(contender.check(black_box(key)));
        }
    }
    start.elapsed()
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
