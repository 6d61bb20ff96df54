//! The tables, the bars, and the section of the page that shows them.

use std::fmt::Write as _;

use super::attack::Harm;
use super::contender::Contender;
use super::measure::Sample;
use super::memory::Idle;
use super::workload::Workload;
use crate::bars::Bar;
use crate::report::write_bars;

/// The bar for our requests per second, relative to the floor.
const OF_FLOOR: f64 = 0.9;

/// The bar for the p99 of a good client next to hostile ones, relative to calm.
const OF_CALM: f64 = 2.0;

/// One workload and the results of each contender, in the order of [`Contender::ALL`].
pub struct Column {
    pub workload: Workload,
    pub samples: Vec<Sample>,
}

pub fn text(columns: &[Column], idle: &[Idle], harms: &[Harm]) -> String {
    let mut text = String::from(
        "| rules, keys, answers | | requests/s | p50 µs | p99 µs | ÷ F | ÷ T | server's CPU µs per request | bytes asked, answered |\n",
    );
    let _ = writeln!(text, "| --- | --- |{}", " ---: |".repeat(7));
    for column in columns {
        write_column(&mut text, column);
    }
    write_idle(&mut text, idle);
    write_harms(&mut text, harms);
    write_bars(&mut text, &bars(columns, harms));
    text
}

fn write_column(text: &mut String, column: &Column) {
    for (contender, sample) in Contender::ALL.iter().zip(&column.samples) {
        let _ = writeln!(
            text,
            "| {} | {} | {:.0} | {:.0} | {:.0} | {:.2} | {:.2} | {:.1} | {}, {} |",
            column.workload.title,
            contender.name(),
            sample.per_second,
            sample.p50_us,
            sample.p99_us,
            sample.of_floor,
            sample.of_throttlecrab,
            sample.cpu_us,
            sample.request_bytes,
            sample.answer_bytes
        );
    }
}

fn write_idle(text: &mut String, idle: &[Idle]) {
    if idle.is_empty() {
        return;
    }
    let title = "bytes per idle connection | after one request | silent";
    let _ = writeln!(text, "\n| {title} |\n| --- | ---: | ---: |");
    for row in idle {
        let _ = writeln!(text, "| {} | {:.0} | {:.0} |", row.contender.name(), row.kept_alive, row.silent);
    }
}

fn write_harms(text: &mut String, harms: &[Harm]) {
    if harms.is_empty() {
        return;
    }
    let title = "a good client of ours beside | p99 µs in calm | p99 µs beside them | ratio";
    let _ = writeln!(text, "\n| {title} |\n| --- | ---: | ---: | ---: |");
    for Harm { attack, calm_p99_us, p99_us, ratio } in harms {
        let _ = writeln!(text, "| {} | {calm_p99_us:.0} | {p99_us:.0} | {ratio:.2} |", attack.name());
    }
}

fn bars(columns: &[Column], harms: &[Harm]) -> Vec<Bar> {
    let harmless = harms.iter().map(|harm| Bar {
        what: format!("{}: p99 / calm", harm.attack.name()),
        measured: harm.ratio,
        at_most: true,
        bound: OF_CALM,
    });
    let bar = |column: &Column| {
        let ours = Contender::ALL.iter().zip(&column.samples).find(|(name, _)| **name == Contender::Ours)?.1;
        Some(Bar {
            what: format!("{}: requests / F", column.workload.title),
            measured: ours.of_floor,
            at_most: false,
            bound: OF_FLOOR,
        })
    };
    columns.iter().filter_map(bar).chain(harmless).collect()
}
