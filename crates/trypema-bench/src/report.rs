//! The table, the bars, and the page that shows them.

use std::fmt::Write as _;
use std::process::ExitCode;

use crate::bars;
use crate::contender::{Load, NAMES, is_single_key};
use crate::measure::{self, Effort};
use crate::process;

/// The results of a run.
pub struct Table {
    columns: Vec<(&'static str, Vec<Option<f64>>)>,
    bytes: Vec<Option<f64>>,
    allocations: Vec<[f64; 2]>,
    pub bytes_per_bucket: Option<f64>,
    pub worst_call_us: Option<f64>,
}

impl Table {
    /// Returns the nanoseconds per call of a contender in a column.
    pub fn time(&self, name: &str, column: &str) -> Option<f64> {
        let (_, times) = self.columns.iter().find(|(title, _)| *title == column)?;
        times[row(name)?]
    }

    pub fn bytes(&self, name: &str) -> Option<f64> {
        self.bytes[row(name)?]
    }
}

fn row(name: &str) -> Option<usize> {
    NAMES.iter().position(|other| *other == name)
}

pub fn local(effort: Effort<'_>) -> ExitCode {
    let table = measured(effort);
    let bars = bars::of(&table);
    let mut text = String::new();
    write_table(&mut text, &table);
    write_bars(&mut text, &bars);
    print_and_keep(&text, ("local", effort))
}

/// Prints the results of `cargo xtask bench <name>`. After a full run, also writes them to the page.
pub fn print_and_keep(text: &str, (name, effort): (&str, Effort<'_>)) -> ExitCode {
    println!("{text}");
    if effort == Effort::Full
        && let Err(error) = update_page(name, text)
    {
        eprintln!("docs/performance.md was not updated: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn measured(effort: Effort<'_>) -> Table {
    let mut columns = Vec::new();
    let title = if let Effort::Quick(title) = effort { title } else { "" };
    for workload in measure::workloads().into_iter().filter(|workload| workload.title.contains(title)) {
        eprintln!("measuring: {}", workload.title);
        columns.push((workload.title, measure::column(&workload, &NAMES, effort)));
    }
    if !title.is_empty() {
        let (bytes, allocations) = (vec![None; NAMES.len()], vec![[0.0; 2]; NAMES.len()]);
        return Table { columns, bytes, allocations, bytes_per_bucket: None, worst_call_us: None };
    }
    eprintln!("measuring: memory, allocations, growth");
    let bytes =
        |name: &&str| (!is_single_key(name)).then(|| process::ask(&["memory", name, "1000000"])).flatten();
    let allocations =
        |name: &&str| [Load::Plenty, Load::Scarce].map(|load| process::allocations_per_call(name, load));
    let worst = ["ours: token bucket", "ours: absolute", "ours: suppressed"];
    let worst = worst.iter().filter_map(|name| process::ask(&["growth", name])).reduce(f64::max);
    Table {
        columns,
        bytes: NAMES.iter().map(bytes).collect(),
        allocations: NAMES.iter().map(allocations).collect(),
        bytes_per_bucket: process::ask(&["buckets", "6000"]),
        worst_call_us: worst,
    }
}

fn write_table(text: &mut String, table: &Table) {
    let titles: Vec<&str> = table.columns.iter().map(|(title, _)| *title).collect();
    let _ = writeln!(
        text,
        "| ns per check | {} | bytes per key | allocations (allowed, denied) |",
        titles.join(" | ")
    );
    let _ = writeln!(text, "| --- |{}", " ---: |".repeat(titles.len() + 2));
    for (at, name) in NAMES.iter().enumerate() {
        let _ = write!(text, "| {name} |");
        for (_, times) in &table.columns {
            let _ = match times[at] {
                Some(time) => write!(text, " {time:.0} |"),
                None => write!(text, " |"),
            };
        }
        let bytes = table.bytes[at].map_or(String::new(), |bytes| format!("{bytes:.0}"));
        let [allowed, denied] = table.allocations[at];
        let _ = writeln!(text, " {bytes} | {allowed:.1}, {denied:.1} |");
    }
}

pub fn write_bars(text: &mut String, bars: &[bars::Bar]) {
    let _ = writeln!(text, "\n| bar | measured | bound | holds |\n| --- | ---: | ---: | --- |");
    for bar in bars {
        let sign = if bar.at_most { "≤" } else { "≥" };
        let holds = if bar.holds() { "yes" } else { "**no**" };
        let _ = writeln!(text, "| {} | {:.2} | {sign} {:.2} | {holds} |", bar.what, bar.measured, bar.bound);
    }
}

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/performance.md");
const END: &str = "<!-- end of what was measured -->\n";

/// Replaces the text between the marks of this benchmark.
fn update_page(name: &str, text: &str) -> Result<(), String> {
    let start = format!("<!-- measured by `cargo xtask bench {name}` -->\n");
    let page = std::fs::read_to_string(PAGE).map_err(|error| error.to_string())?;
    let (before, rest) = page.split_once(&start).ok_or("it has no start mark")?;
    let (_, after) = rest.split_once(END).ok_or("it has no end mark")?;
    std::fs::write(PAGE, format!("{before}{start}\n{text}\n{END}{after}")).map_err(|error| error.to_string())
}
