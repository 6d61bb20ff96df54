//! The table, the bars, and the page that shows them.

use std::fmt::Write as _;
use std::process::{Command, ExitCode};

use crate::bars::{self, RepeatedBar, Spread};
use crate::contender::{Load, NAMES, is_single_key};
use crate::measure::{self, Effort};
use crate::process;

/// The results of a run.
pub struct Table {
    /// The nanoseconds per check of each contender in each round, by column.
    columns: Vec<(&'static str, Vec<Vec<f64>>)>,
    bytes: Vec<Option<f64>>,
    allocations: Vec<[f64; 2]>,
    pub bytes_per_bucket: Option<f64>,
    pub worst_call_us: Option<f64>,
}

impl Table {
    /// Returns the time of the first contender as a ratio to that of the second, in each round of a column.
    pub fn ratio(&self, names: [&str; 2], column: &str) -> Option<Spread> {
        let (_, rounds) = self.columns.iter().find(|(title, _)| *title == column)?;
        let [ours, theirs] = names.map(|name| row(name).map(|row| &rounds[row]));
        Spread::of(ours?.iter().zip(theirs?).map(|(ours, theirs)| ours / theirs).collect())
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
    let mut text = machine();
    write_table(&mut text, &table);
    write_repeated_bars(&mut text, &bars);
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
    let worst = ["ours: token bucket", "ours: absolute, inc", "ours: suppressed"];
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
        for (_, rounds) in &table.columns {
            let _ = match Spread::of(rounds[at].clone()) {
                Some(Spread { median, .. }) => write!(text, " {median:.0} |"),
                None => write!(text, " |"),
            };
        }
        let bytes = table.bytes[at].map_or(String::new(), |bytes| format!("{bytes:.0}"));
        let [allowed, denied] = table.allocations[at];
        let _ = writeln!(text, " {bytes} | {allowed:.1}, {denied:.1} |");
    }
}

fn write_repeated_bars(text: &mut String, bars: &[RepeatedBar]) {
    let _ = writeln!(text, "\n| bar | median | middle half | bound | |\n| --- | ---: | ---: | ---: | --- |");
    for repeated in bars {
        let RepeatedBar { bar, quartiles: [low, high] } = repeated;
        let verdict = repeated.verdict();
        let _ = writeln!(
            text,
            "| {} | {:.2} | {low:.2} to {high:.2} | ≤ {:.2} | {verdict} |",
            bar.what, bar.measured, bar.bound
        );
    }
}

/// Returns a line with the processor, the kernel's clock source and the compiler.
fn machine() -> String {
    let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processor = file("/proc/cpuinfo");
    let model = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let clock = file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let compiler = Command::new("rustc").arg("--version").output().map(|output| output.stdout);
    format!(
        "Processor: {}. Clock source of the kernel: {}. Compiler: {}.\n\n",
        model.map_or("unknown", |(_, model)| model),
        clock.trim(),
        String::from_utf8_lossy(&compiler.unwrap_or_default()).trim()
    )
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
