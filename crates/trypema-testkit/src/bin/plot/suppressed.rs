//! The suppressed strategy at several loads: it settles at its soft limit, and never exceeds its hard
//! limit.

use std::fmt::Write;

use trypema::{
    HardLimitFactor, RateGroupSizeMs, RateLimit, SuppressedLimit, TrypemaError, WindowSizeSeconds,
};
use trypema_testkit::simulator::{Load, Series, Summary};

use crate::panel::{Panel, Scale};
use crate::scene::{EPOCH, Scene};
use crate::{Drawn, Picture};
use trypema_testkit::svg::{Area, Drawing, Point, thousands};

/// The offered loads, in multiples of the limit.
const LOADS: [f64; 4] = [1.3, 2.0, 5.0, 50.0];
const PER_SECOND: f64 = 100.0;
const WINDOW_S: u64 = 10;
const WINDOWS: u64 = 6;

const WIDTH: u32 = 860;
const PANEL_WIDTH: f64 = 350.0;
const PANEL_HEIGHT: f64 = 96.0;
const ROW_HEIGHT: f64 = 150.0;
const FIRST_ROW: f64 = 100.0;
const COLUMNS: [f64; 2] = [60.0, 490.0];

pub(crate) fn picture() -> Drawn {
    let limit = SuppressedLimit::new(
        RateLimit::try_from(PER_SECOND)?,
        WindowSizeSeconds::try_from(WINDOW_S)?,
        RateGroupSizeMs::try_from(10)?,
        HardLimitFactor::default(),
    );
    let series: Vec<Series> =
        LOADS.iter().map(|load| simulated(limit, *load)).collect::<Result<_, TrypemaError>>()?;
    Ok(Picture { file_name: "suppressed.svg", svg: drawn(limit, &series), markdown: table(limit, &series) })
}

fn simulated(limit: SuppressedLimit, load: f64) -> Result<Series, TrypemaError> {
    let scene = Scene { start: EPOCH, loads: &[Load::even(PER_SECOND * load)], seconds: WINDOW_S * WINDOWS };
    scene.played(&|limiter, key| {
        let decision = limiter.local().suppressed().take(key, &limit, 1);
        decision.is_allowed()
    })
}

fn drawn(limit: SuppressedLimit, series: &[Series]) -> String {
    let height = FIRST_ROW + ROW_HEIGHT * series.len() as f64;
    let mut drawing = Drawing::new(
        WIDTH,
        height as u32,
        "The suppressed strategy under even load of 1.3, 2, 5 and 50 times its limit",
    );
    headings(&mut drawing, limit);
    for (row, (load, series)) in LOADS.iter().zip(series).enumerate() {
        let top = FIRST_ROW + ROW_HEIGHT * row as f64;
        let offered = thousands((PER_SECOND * load) as u64);
        let offered = format!("{load}× the limit: {offered} calls/s");
        per_second(COLUMNS[0], top).frame(&mut drawing, &offered);
        per_second(COLUMNS[0], top).admitted(&mut drawing, &series.per_second());
        per_second(COLUMNS[0], top).level(&mut drawing, PER_SECOND, "soft");

        let sums = per_window(COLUMNS[1], top);
        let worst = thousands(series.worst_window(WINDOW_S));
        sums.frame(&mut drawing, &format!("at most {worst} in any window"));
        sums.curve(&mut drawing, &last_window(series));
        sums.level(&mut drawing, limit.soft() as f64, "soft");
        sums.level(&mut drawing, limit.hard() as f64, "hard");
    }
    let below = height - ROW_HEIGHT + PANEL_HEIGHT + 34.0;
    for left in COLUMNS {
        let at = Point { x: left + PANEL_WIDTH / 2.0, y: below };
        drawing.text(at, "middle", "seconds");
    }
    drawing.finish()
}

fn headings(drawing: &mut Drawing, limit: SuppressedLimit) {
    let at = |x, y| Point { x, y };
    let [left, right] = COLUMNS;
    drawing.text(at(left, 22.0), "heading", "Admitted in each second");
    drawing.text(at(right, 22.0), "heading", &format!("Admitted in the last {WINDOW_S} seconds"));
    let key = |drawing: &mut Drawing, x: f64, class, words: &str| {
        drawing.line(at(x, 44.0), at(x + 26.0, 44.0), class);
        drawing.text(at(x + 32.0, 48.0), "", words);
    };
    key(drawing, left, "soft", &format!("the limit, {PER_SECOND}/s"));
    let soft = format!("soft, {}", thousands(limit.soft()));
    key(drawing, right, "soft", &soft);
    let hard = format!("hard, {}", thousands(limit.hard()));
    key(drawing, right + 120.0, "hard", &hard);
}

fn per_second(left: f64, top: f64) -> Panel {
    panel(left, top, [300, 100])
}

fn per_window(left: f64, top: f64) -> Panel {
    panel(left, top, [2_000, 500])
}

fn panel(left: f64, top: f64, [highest, per_tick]: [u64; 2]) -> Panel {
    Panel {
        area: Area { left, top, width: PANEL_WIDTH, height: PANEL_HEIGHT },
        scale: Scale { seconds: WINDOW_S * WINDOWS, seconds_per_tick: WINDOW_S, top: highest, per_tick },
    }
}

/// Returns the number of calls admitted in the window that ends at each fifth of a second.
fn last_window(series: &Series) -> Vec<u64> {
    const STEP_US: u64 = 200_000;
    const WINDOW_US: u64 = WINDOW_S * 1_000_000;
    let admitted = series.admitted_at();
    let before = |moment_us: u64| admitted.partition_point(|at| *at < moment_us) as u64;
    (0..=WINDOW_S * WINDOWS * 1_000_000 / STEP_US)
        .map(|step| step * STEP_US)
        .map(|end| before(end) - before(end.saturating_sub(WINDOW_US)))
        .collect()
}

/// Returns the same data as a Markdown table: calls admitted per window, the maximum in any interval of a
/// window's length, and seconds without admitted calls.
fn table(limit: SuppressedLimit, series: &[Series]) -> String {
    let mut table = String::from("| load | offered per window |");
    for window in 1..=WINDOWS {
        let _ = write!(table, " window {window} |");
    }
    table.push_str(" most in any interval | silent seconds after window 1 |\n| ---: |");
    table.push_str(&" ---: |".repeat(WINDOWS as usize + 3));
    for (load, series) in LOADS.iter().zip(series) {
        let windows = series.per_window(WINDOW_S as usize);
        let offered = PER_SECOND * load * WINDOW_S as f64;
        let _ = write!(table, "\n| {load} × | {} |", thousands(offered as u64));
        for window in &windows {
            let _ = write!(table, " {} |", thousands(window.admitted));
        }
        let later = &series.per_second()[WINDOW_S as usize..];
        let worst = thousands(series.worst_window(WINDOW_S));
        let _ = write!(table, " {worst} | {} |", Summary::of(later).zeros);
    }
    let (soft, hard) = (thousands(limit.soft()), thousands(limit.hard()));
    format!("Windows of {WINDOW_S} s, soft {soft}, hard {hard}:\n\n{table}\n")
}
