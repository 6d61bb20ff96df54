//! Instructions and cache misses per check, which the load of the machine does not change: `cargo xtask bench counts`.

use std::fmt::Write as _;
use std::process::{Command, ExitCode};

use crate::contender::{NAMES, is_single_key};
use crate::measure::{self, Effort};
use crate::report::print_and_keep;

/// The columns whose instructions are counted.
const INSTRUCTIONS: [&str; 3] = ["hot key, allowed", "hot key, idle", "hot key, denied"];

/// The columns whose cache misses are counted, too.
const MISSES: [&str; 2] = ["100k keys, busy", "100k keys, idle"];

pub fn run(effort: Effort<'_>) -> ExitCode {
    let title = if let Effort::Quick(title) = effort { title } else { "" };
    let titles = || INSTRUCTIONS.iter().chain(&MISSES).filter(|column| column.contains(title));
    let mut text = String::from("| per check |");
    for column in titles() {
        let _ = write!(text, " {column} |");
    }
    let _ = write!(text, "\n| --- |{}", " ---: |".repeat(titles().count()));
    for name in NAMES.iter().filter(|name| **name != "limitador") {
        let _ = write!(text, "\n| {name} |");
        for column in titles() {
            eprintln!("counting: {name}, {column}");
            let is_hot = INSTRUCTIONS.contains(column);
            let counts = (is_hot || !is_single_key(name)).then(|| per_check(name, column)).flatten();
            let _ = match counts {
                Some([instructions, ..]) if is_hot => write!(text, " {instructions:.0} |"),
                Some([instructions, first, last]) => {
                    write!(text, " {instructions:.0}; {first:.1} + {last:.1} misses |")
                }
                None => write!(text, " |"),
            };
        }
    }
    text.push_str("\n\nMisses: reads and writes that miss the first level, and the last one, of the simulated caches.\n");
    print_and_keep(&text, ("counts", effort))
}

/// Runs the contender under cachegrind with two numbers of checks. Returns the instructions, the misses of the first
/// level of cache and those of the last one that a check adds. Returns `None` without valgrind.
fn per_check(name: &str, title: &str) -> Option<[f64; 3]> {
    let (few, many) = (100_000, 300_000);
    let counted = |calls: u32| {
        let program = std::env::current_exe().ok()?;
        let output = Command::new("valgrind")
            .args(["--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null"])
            .arg(program)
            .args(["calls", name, title, &calls.to_string()])
            .output()
            .ok()?;
        let summary = String::from_utf8(output.stderr).ok()?;
        let number = |label: &str| {
            let line = summary.lines().find(|line| line.contains(label))?;
            let number = line.split(':').nth(1)?.split('(').next()?;
            number.replace([',', ' '], "").parse::<f64>().ok()
        };
        Some([number("I refs")?, number("D1  misses")?, number("LLd misses")?])
    };
    let (first, second) = (counted(few)?, counted(many)?);
    let per = |place: usize| (second[place] - first[place]) / f64::from(many - few);
    Some([per(0), per(1), per(2)])
}

/// Checks as often as `count` says, under a tool that counts.
pub fn calls(name: &str, title: &str, count: &str) -> ExitCode {
    measure::calls(name, title, count.parse().expect("a number of checks"));
    ExitCode::SUCCESS
}
