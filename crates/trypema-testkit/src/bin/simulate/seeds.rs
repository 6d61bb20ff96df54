//! Simulates any number of random fleets.

use std::collections::BTreeMap;
use std::process::ExitCode;

use trypema_testkit::simulator::fleet::chaos::{self, Played};

/// The number of failures that are printed.
const SHOWN: usize = 10;

#[derive(Default)]
struct Sums {
    runs: u64,
    forgetting: u64,
    calls: usize,
    admitted: usize,
    admitted_here: u64,
    messages: u64,
}

/// Simulates `count` seeds, starting with `first`.
pub(crate) fn play([count, first]: [u64; 2]) -> ExitCode {
    let mut sums: BTreeMap<&str, Sums> = BTreeMap::new();
    let mut failed = 0;
    for seed in first..first + count {
        let played = chaos::play(seed);
        sums.entry(played.strategy).or_default().add(&played);
        if let Some(wrong) = played.wrong {
            failed += 1;
            if failed <= SHOWN {
                println!("seed {seed}: {wrong}");
            }
        }
    }
    for (strategy, sums) in &sums {
        let Sums { runs, forgetting, calls, admitted, admitted_here, messages } = sums;
        println!(
            "{strategy}: {runs} fleets ({forgetting} whose store forgot), {calls} calls, {admitted} admitted \
             ({admitted_here} out of leases), {messages} requests"
        );
    }
    println!("{failed} of {count} broke the invariant");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Sums {
    fn add(&mut self, played: &Played) {
        self.runs += 1;
        self.forgetting += u64::from(played.is_forgetting);
        self.calls += played.calls;
        self.admitted += played.admitted;
        self.admitted_here += played.admitted_here;
        self.messages += played.messages;
    }
}
