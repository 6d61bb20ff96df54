//! The time that each step of a long command takes.

use std::time::{Duration, Instant};

/// Steps that took less are summed up in one row.
const SHORT: Duration = Duration::from_secs(1);

/// The steps so far, in order.
#[derive(Debug)]
pub(crate) struct Report {
    steps: Vec<(String, Duration)>,
    started: Instant,
}

impl Report {
    pub(crate) fn new() -> Self {
        Self { steps: Vec::new(), started: now() }
    }

    /// Adds the time since the last step, or since the start, as a step of this name.
    pub(crate) fn end_of(&mut self, step: &str) {
        let ended = now();
        self.steps.push((step.to_owned(), ended.duration_since(self.started)));
        self.started = ended;
    }

    /// Returns the table of all steps, in Markdown.
    pub(crate) fn table(&self) -> String {
        let total = self.steps.iter().map(|(_, took)| *took).sum();
        let long = self.steps.iter().filter(|(_, took)| *took >= SHORT);
        let short: Duration =
            self.steps.iter().filter(|(_, took)| *took < SHORT).map(|(_, took)| *took).sum();
        let mut table = "| step | seconds |\n| --- | ---: |\n".to_owned();
        let mut add = |step: &str, took: Duration| {
            table.push_str(&format!("| {step} | {:.0} |\n", took.as_secs_f64()));
        };
        long.for_each(|(step, took)| add(step, *took));
        add("all steps of less than a second", short);
        add("total", total);
        table
    }
}

#[expect(clippy::disallowed_methods, reason = "what is measured is the real time")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_steps_share_a_row() {
        let steps = [("lint", 61_400), ("redis", 1_000), ("compat", 999), ("xtask", 3)];
        let steps = steps.map(|(step, ms)| (step.to_owned(), Duration::from_millis(ms)));
        let report = Report { steps: steps.to_vec(), started: now() };
        let rows = "| lint | 61 |\n| redis | 1 |\n| all steps of less than a second | 1 |\n| total | 63 |\n";
        assert_eq!(report.table(), format!("| step | seconds |\n| --- | ---: |\n{rows}"));
    }
}
