//! The tables, the bars, and the section of the page that shows them.

use std::fmt::Write as _;

use super::MANY;
use super::disturb::{Disturbance, Harm};
use super::load::Sample;
use super::steady::PER_SECOND;
use crate::bars::Bar;
use crate::report::write_bars;

/// The bar for the milliseconds until a change is in force.
const LOAD_MS: f64 = 1_000.0;
/// The bar for the p99 of checks while rules change, relative to calm.
const OF_CALM: f64 = 2.0;
/// The bar for resident memory after twenty reloads, relative to ten.
const OF_TEN: f64 = 1.1;

const MIB: f64 = 1_048_576.0;

pub fn text(samples: &[Sample], harms: &[Harm]) -> String {
    let mut text = String::new();
    write_samples(&mut text, samples);
    write_harms(&mut text, harms);
    write_bars(&mut text, &bars(samples, harms));
    text
}

fn write_samples(text: &mut String, samples: &[Sample]) {
    if samples.is_empty() {
        return;
    }
    text.push_str("| |");
    for sample in samples {
        let _ = write!(text, " {} rules |", sample.rules);
    }
    let _ = writeln!(text, "\n| --- |{}", " ---: |".repeat(samples.len()));
    for (title, value) in rows() {
        let _ = write!(text, "| {title} |");
        samples.iter().for_each(|sample| {
            let _ = write!(text, " {} |", value(sample));
        });
        text.push('\n');
    }
}

type Row = (&'static str, fn(&Sample) -> String);

fn rows() -> [Row; 13] {
    [
        ("all stored through `PUT /v1/ruleset`, ms", |of| format!("{:.0}", of.store_ms)),
        ("start of a server to its first answer, ms", |of| format!("{:.0}", of.start_ms)),
        ("a change by hand until it is in force, ms: median, worst", |of| {
            format!("{:.0}, {:.0}", of.load_ms.median, of.load_ms.worst)
        }),
        ("of that: statements in the database, ms", |of| format!("{:.0}", of.database_ms)),
        ("of that: compiling, ms", |of| format!("{:.0}", of.compile_ms)),
        ("from asking one server for a change until it is in force on another, ms: median, worst", |of| {
            format!("{:.0}, {:.0}", of.other_ms.median, of.other_ms.worst)
        }),
        ("resident MiB without rules", |of| format!("{:.1}", of.memory.without_rules / MIB)),
        ("resident MiB with them", |of| format!("{:.1}", of.memory.at_start / MIB)),
        ("resident MiB after one reload", |of| format!("{:.1}", of.memory.after_one / MIB)),
        ("resident MiB after ten reloads", |of| format!("{:.1}", of.memory.after_ten / MIB)),
        ("resident MiB after twenty reloads", |of| format!("{:.1}", of.memory.after_twenty / MIB)),
        ("resident MiB at its peak", |of| format!("{:.1}", of.memory.peak / MIB)),
        ("bytes per rule at start, after twenty reloads", |of| {
            let each = |bytes: f64| (bytes - of.memory.without_rules) / of.rules as f64;
            format!("{:.0}, {:.0}", each(of.memory.at_start), each(of.memory.after_twenty))
        }),
    ]
}

fn write_harms(text: &mut String, harms: &[Harm]) {
    let title =
        "p50, p99, p999 µs in calm | p50, p99, p999 µs beside it | p99 ratio | server's CPU ms per change";
    let _ = writeln!(text, "\n| {PER_SECOND} checks a second beside | {title} |");
    let _ = writeln!(text, "| --- |{}", " ---: |".repeat(4));
    for Harm { disturbance, calm, beside, ratio, cpu_ms } in harms {
        let name = disturbance.name();
        let _ = write!(text, "| {name} |");
        for latency in [calm, beside] {
            let _ = write!(text, " {:.0}, {:.0}, {:.0} |", latency.p50_us, latency.p99_us, latency.p999_us);
        }
        let _ = writeln!(text, " {ratio:.2} | {cpu_ms:.0} |");
    }
}

fn bars(samples: &[Sample], harms: &[Harm]) -> Vec<Bar> {
    let mut bars = Vec::new();
    let mut at_most = |what: String, measured, bound| {
        bars.push(Bar { what, measured, at_most: true, bound });
    };
    for sample in samples.iter().filter(|sample| sample.rules == MANY) {
        at_most(format!("{MANY} rules: worst load, ms"), sample.load_ms.worst, LOAD_MS);
        let title = format!("{MANY} rules: worst change through another server, ms");
        at_most(title, sample.other_ms.worst, LOAD_MS);
        let title = format!("{MANY} rules: resident memory after twenty reloads / after ten");
        at_most(title, sample.memory.growth(), OF_TEN);
    }
    for harm in harms.iter().filter(|harm| harm.disturbance != Disturbance::Elsewhere) {
        at_most(format!("{}: p99 / calm", harm.disturbance.name()), harm.ratio, OF_CALM);
    }
    bars
}
