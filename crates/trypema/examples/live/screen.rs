//! Draws the run as a chart that is redrawn in place.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::arguments::{Plan, Style};
use crate::ledger::{Ledger, Tally};
use crate::strategy_run::StrategyRun;

/// The widths of the names and of the chart. With the numbers, a line fits into 80 columns.
const NAMES: usize = 19;
const COLUMNS: u32 = 40;

/// The least height of a strategy, and the height of a single strategy.
const LEAST_ROWS: usize = 2;
const ALONE_ROWS: usize = 12;

/// The lines outside of strategies: the title, a blank line, the axis, and the line of the cursor.
const OTHER_LINES: usize = 4;

/// The height of a terminal that does not report one.
const USUAL_HEIGHT: usize = 24;

/// The numbers cover the last second.
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
    /// The rate that a full column represents, per second.
    peak: f64,
    length: Duration,
    rows: usize,
    drawn_lines: usize,
}

impl Screen {
    /// Returns a screen if the output is a terminal of sufficient height and the user did not choose plain
    /// output.
    pub(crate) fn of_terminal(plan: &Plan, strategies: &[StrategyRun]) -> Option<Self> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if plan.style == Style::Plain || is_dumb || !std::io::stdout().is_terminal() {
            return None;
        }
        let height = terminal_height().unwrap_or(USUAL_HEIGHT);
        let lines_per_strategy = height.checked_sub(OTHER_LINES)? / strategies.len();
        let rows = lines_per_strategy.checked_sub(1)?.min(if strategies.len() == 1 {
            ALONE_ROWS
        } else {
            2 * LEAST_ROWS
        });
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

    /// Draws the run at `now`, in one write to avoid flicker.
    pub(crate) fn draw(&mut self, now: Duration, strategies: &[StrategyRun], ledgers: &[Ledger]) {
        let mut lines = vec![self.heading(), String::new()];
        for (strategy, ledger) in strategies.iter().zip(ledgers) {
            lines.extend(self.strategy_lines(now, strategy, ledger));
            lines.push(String::new());
        }
        lines.pop();
        lines.push(self.axis(now));
        let mut frame = String::new();
        if self.drawn_lines > 0 {
            let _ = write!(frame, "\x1b[{}A", self.drawn_lines);
        }
        for line in &lines {
            // Clears the rest of the line from the previous frame. Narrow terminals truncate the line instead
            // of wrapping it.
            let _ = write!(frame, "\r\x1b[?7l{line}\x1b[K\x1b[?7h\r\n");
        }
        self.drawn_lines = lines.len();
        let mut out = std::io::stdout().lock();
        // If the terminal is closed, the process ends anyway.
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

    /// Draws a strategy: its name and state, its chart and its numbers.
    fn strategy_lines(&self, now: Duration, strategy: &StrategyRun, ledger: &Ledger) -> Vec<String> {
        let columns = self.columns(now, ledger);
        let since = now.saturating_sub(RECENT);
        let recent = ledger.tally(since..now).per_second(now - since);
        let row = |row: usize| {
            let base = (self.rows - 1 - row) * 8;
            let is_limit = (base..base + 8).contains(&self.height(self.allowed));
            let (text, number) = match row {
                0 => (strategy.name.text().to_owned(), per_second("admitted", recent.admitted)),
                1 => (strategy.status(), per_second("denied", recent.denied)),
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

    /// Returns the columns of the chart up to `now`. The last column covers only the elapsed part of its
    /// interval.
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

    /// Returns the height of `rate` in the chart, in eighths of a row.
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
    /// Returns the cell of the column in the row that starts at height `base`.
    fn cell(&self, base: usize) -> String {
        let admitted = self.admitted.saturating_sub(base).min(8);
        let offered = self.offered.saturating_sub(base).min(8).max(admitted);
        match (admitted, offered) {
            (_, 0) => " ".to_owned(),
            (0, _) => format!("{RED}{}{RESET}", EIGHTHS[offered]),
            (8, _) => format!("{GREEN}█{RESET}"),
            (_, 8) => format!("{GREEN_ON_RED}{}{RESET}", EIGHTHS[admitted]),
            // A cell has two colours, and here one of them is the background. The larger part determines the
            // other.
            _ if 2 * admitted >= offered => format!("{GREEN}{}{RESET}", EIGHTHS[offered]),
            _ => format!("{RED}{}{RESET}", EIGHTHS[offered]),
        }
    }
}

fn per_second(what: &str, rate: u64) -> String {
    format!("{rate:>6}/s {what}")
}

/// Returns the number of lines of the terminal, as reported by `stty`.
fn terminal_height() -> Option<usize> {
    let mut stty = Command::new("stty");
    let output = stty.arg("size").stdin(Stdio::inherit()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().next()?.parse().ok()
}
