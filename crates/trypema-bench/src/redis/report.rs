//! The tables, the bars, and the section of the page that shows them.

use std::fmt::Write as _;
use std::process::ExitCode;

use super::bars;
use super::contender::{HYBRID, NAMES};
use super::measure::{self, ALONE, MANY_KEYS, Sample};
use super::memory::{self, BUCKETS, Bytes};
use super::server::Place;
use crate::measure::Effort;
use crate::report::{print_and_keep, write_bars};

/// The results of a run.
pub struct Table {
    columns: Vec<(&'static str, Vec<Option<Sample>>)>,
    pub bytes: Vec<Bytes>,
    /// For each counted contender, how far it ended from its limit.
    pub misses: Vec<(&'static str, f64)>,
}

impl Table {
    /// Returns the calls per second of a contender in a column.
    pub fn rate(&self, name: &str, column: &str) -> Option<f64> {
        let row = NAMES.iter().position(|other| *other == name)?;
        self.sample(row, column).map(|sample| sample.calls_per_second)
    }

    fn sample(&self, row: usize, column: &str) -> Option<Sample> {
        let (_, samples) = self.columns.iter().find(|(title, _)| *title == column)?;
        samples[row]
    }
}

/// Measures the contenders whose names contain `only`.
pub fn run(effort: Effort<'_>, only: &str) -> ExitCode {
    let table = measured(effort, only);
    let mut text = String::new();
    write_rates(&mut text, &table);
    write_bytes(&mut text, &table.bytes);
    write_bars(&mut text, &bars::of(&table));
    print_and_keep(&text, ("redis", effort))
}

fn measured(effort: Effort<'_>, only: &str) -> Table {
    let mut place = Place::new();
    let title = if let Effort::Quick(title) = effort { title } else { "" };
    let mut table = Table { columns: Vec::new(), bytes: Vec::new(), misses: Vec::new() };
    for workload in measure::workloads().into_iter().filter(|workload| workload.title.contains(title)) {
        eprintln!("measuring: {}", workload.title);
        let of = (&workload, effort);
        let side_by_side = measure::column(&mut place, of, |name| name != HYBRID && name.contains(only));
        let alone = measure::column(&mut Place::new(), of, |name| name == HYBRID && name.contains(only));
        let samples = side_by_side.into_iter().zip(alone).map(|(sample, other)| sample.or(other));
        table.columns.push((workload.title, samples.collect()));
    }
    if title.is_empty() && only.is_empty() {
        eprintln!("measuring: exactness, bytes");
        table.misses = measure::exactness(&mut place);
        table.bytes = memory::measured(&mut place);
    }
    table
}

fn write_rates(text: &mut String, table: &Table) {
    let titles: Vec<&str> = table.columns.iter().map(|(title, _)| *title).collect();
    let _ = writeln!(
        text,
        "| thousand calls a second | {} | µs in commands, {ALONE} | µs in commands, {MANY_KEYS} | µs of CPU, {MANY_KEYS} |",
        titles.join(" | ")
    );
    let _ = writeln!(text, "| --- |{}", " ---: |".repeat(titles.len() + 3));
    let shown = |number: Option<f64>| number.map_or(String::new(), |number| format!("{number:.1}"));
    for (row, name) in NAMES.iter().enumerate() {
        let rates =
            table.columns.iter().map(|(_, samples)| samples[row].map(|sample| sample.calls_per_second / 1e3));
        let costs = [
            table.sample(row, ALONE).map(|sample| sample.command_us),
            table.sample(row, MANY_KEYS).map(|sample| sample.command_us),
            table.sample(row, MANY_KEYS).map(|sample| sample.cpu_us),
        ];
        let cells: Vec<String> = rates.chain(costs).map(shown).collect();
        let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
    }
}

fn write_bytes(text: &mut String, rows: &[Bytes]) {
    if rows.is_empty() {
        return;
    }
    let titles =
        BUCKETS.map(|buckets| if buckets == 1 { "1 hit".to_owned() } else { format!("{buckets} buckets") });
    let _ = writeln!(text, "\n| bytes per subject | `user_123`, 1 hit | {} |", titles.join(" | "));
    let _ = writeln!(text, "| --- | ---: |{}", " ---: |".repeat(BUCKETS.len()));
    for row in rows {
        let cell = |at: usize| row.buckets.get(at).map_or(String::new(), |bytes| format!("{bytes:.0}"));
        let cells: Vec<String> = (0..BUCKETS.len()).map(cell).collect();
        let _ = writeln!(text, "| {} | {:.0} | {} |", row.name, row.seeds_key, cells.join(" | "));
    }
}
