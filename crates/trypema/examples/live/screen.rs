//! The run as a picture that is drawn over itself.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::arguments::{Plan, Style};
use crate::lanes::Lane;
use crate::ledger::{Ledger, Tally};

/// The picture fits into 80 columns: names, chart, numbers.
const NAMES: usize = 19;
const COLUMNS: u32 = 40;

/// A lane is at least this high, and this high when it is alone.
const LEAST_ROWS: usize = 2;
const ALONE_ROWS: usize = 12;

/// Lines that are not a lane's: title, blank, axis, and the cursor's own.
const OTHER_LINES: usize = 4;

/// What a terminal is taken to have that does not say.
const USUAL_HEIGHT: usize = 24;

/// Numbers are those of the last second.
const RECENT: Duration = Duration::from_secs(1);

const GREEN: &str = "\x1b[38;5;42m";
const RED: &str = "\x1b[38;5;124m";
const GREEN_ON_RED: &str = "\x1b[38;5;42;48;5;124m";
const BOLD: &str = "\x1b[1m";
const FAINT: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub(crate) struct Screen {
    title: String,
    /// The limit, per second.
    allowed: f64,
    /// What a full column stands for, per second.
    peak: f64,
    length: Duration,
    rows: usize,
    drawn_lines: usize,
}

impl Screen {
    /// A screen, if the output is a terminal that is high enough and the user wants one.
    pub(crate) fn of_terminal(plan: &Plan, lanes: &[Lane]) -> Option<Self> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if plan.style == Style::Plain || is_dumb || !std::io::stdout().is_terminal() {
            return None;
        }
        let height = terminal_height().unwrap_or(USUAL_HEIGHT);
        let for_lanes = height.checked_sub(OTHER_LINES)? / lanes.len();
        let rows = for_lanes.checked_sub(1)?.min(if lanes.len() == 1 { ALONE_ROWS } else { 2 * LEAST_ROWS });
        (rows >= LEAST_ROWS).then(|| Self::new(plan, rows))
    }

    fn new(plan: &Plan, rows: usize) -> Self {
        let (limit, window, load) = (plan.limit, plan.window.as_secs(), plan.load.text());
        let allowed = limit as f64 / plan.window.as_secs_f64();
        Self {
            title: format!("{limit} calls allowed per {window} s on one key · load: {load}"),
            allowed,
            peak: plan.load.peak() * allowed,
            length: Duration::from_secs(plan.seconds),
            rows,
            drawn_lines: 0,
        }
    }

    /// Draws the run as it is at `now`, in one write so that nothing flickers.
    pub(crate) fn draw(&mut self, now: Duration, lanes: &[Lane], ledgers: &[Ledger]) {
        let mut lines = vec![self.heading(), String::new()];
        for (lane, ledger) in lanes.iter().zip(ledgers) {
            lines.extend(self.lane(now, lane, ledger));
            lines.push(String::new());
        }
        lines.pop();
        lines.push(self.axis(now));
        let mut frame = String::new();
        if self.drawn_lines > 0 {
            let _ = write!(frame, "\x1b[{}A", self.drawn_lines);
        }
        for line in &lines {
            // What an earlier frame left to the right is cleared, and narrow terminals cut instead of wrapping.
            let _ = write!(frame, "\r\x1b[?7l{line}\x1b[K\x1b[?7h\r\n");
        }
        self.drawn_lines = lines.len();
        let mut out = std::io::stdout().lock();
        // A terminal that went away ends the program by itself.
        let _ = out.write_all(frame.as_bytes()).and_then(|()| out.flush());
    }

    fn heading(&self) -> String {
        let title = &self.title;
        format!(" {BOLD}{title}{RESET}   {GREEN}█{RESET} admitted {RED}█{RESET} denied")
    }

    fn axis(&self, now: Duration) -> String {
        let (now, length) = (now.as_secs_f64(), self.length.as_secs());
        let dashes = "─".repeat(COLUMNS as usize);
        let clock = format!("{now:.1} of {length} s");
        format!(" {:NAMES$}{FAINT}└{dashes}{RESET} {clock:>14}", "")
    }

    /// A lane: its name and how it stands, its chart, its numbers.
    fn lane(&self, now: Duration, lane: &Lane, ledger: &Ledger) -> Vec<String> {
        let columns = self.columns(now, ledger);
        let since = now.saturating_sub(RECENT);
        let recent = ledger.tally(since..now).per_second(now - since);
        let row = |row: usize| {
            let base = (self.rows - 1 - row) * 8;
            let is_limit = (base..base + 8).contains(&self.height(self.allowed));
            let (text, number) = match row {
                0 => (lane.name.text().to_owned(), per_second("admitted", recent.admitted)),
                1 => (lane.status(), per_second("denied", recent.denied)),
                2 => (String::new(), per_second("offered", recent.offered())),
                _ => (String::new(), String::new()),
            };
            let text = match text.as_str() {
                "" if is_limit => format!("{:>NAMES$}", format!("limit {:.0}/s", self.allowed)),
                _ => format!("{text:NAMES$}"),
            };
            let weight = if row == 0 { BOLD } else { "" };
            let mark = if is_limit { '┤' } else { '│' };
            let chart: String = columns.iter().map(|column| column.cell(base)).collect();
            let blank = " ".repeat(COLUMNS as usize - columns.len());
            format!(" {weight}{text}{RESET}{FAINT}{mark}{RESET}{chart}{blank} {number}")
        };
        (0..self.rows).map(row).collect()
    }

    /// The columns of the chart up to `now`; the last one is of what has passed of it.
    fn columns(&self, now: Duration, ledger: &Ledger) -> Vec<Column> {
        let width = self.length / COLUMNS;
        let column = |index: u32| {
            let start = width * index;
            let end = (start + width).min(now);
            (start < end).then(|| self.column(ledger.tally(start..end).per_second(end - start)))
        };
        (0..COLUMNS).map_while(column).collect()
    }

    fn column(&self, tally: Tally) -> Column {
        Column { admitted: self.height(tally.admitted as f64), offered: self.height(tally.offered() as f64) }
    }

    /// How high `rate` stands in the chart, in eighths of a row.
    fn height(&self, rate: f64) -> usize {
        let full = self.rows * 8;
        ((rate / self.peak * full as f64).round() as usize).min(full)
    }
}

/// A column of the chart, in eighths of a row.
struct Column {
    admitted: usize,
    offered: usize,
}

impl Column {
    /// What is seen of it in the row that starts at height `base`.
    fn cell(&self, base: usize) -> String {
        let admitted = self.admitted.saturating_sub(base).min(8);
        let offered = self.offered.saturating_sub(base).min(8).max(admitted);
        match (admitted, offered) {
            (_, 0) => " ".to_owned(),
            (0, _) => format!("{RED}{}{RESET}", EIGHTHS[offered]),
            (8, _) => format!("{GREEN}█{RESET}"),
            (_, 8) => format!("{GREEN_ON_RED}{}{RESET}", EIGHTHS[admitted]),
            // One cell has two colours, and here the ground is one: the larger part gives the other.
            _ if 2 * admitted >= offered => format!("{GREEN}{}{RESET}", EIGHTHS[offered]),
            _ => format!("{RED}{}{RESET}", EIGHTHS[offered]),
        }
    }
}

fn per_second(what: &str, rate: u64) -> String {
    format!("{rate:>6}/s {what}")
}

/// How many lines the terminal has, as `stty` says.
fn terminal_height() -> Option<usize> {
    let mut stty = Command::new("stty");
    let output = stty.arg("size").stdin(Stdio::inherit()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().next()?.parse().ok()
}
