//! The six strategies that limit a rate, side by side: the same burst, then the same steady overload.

use std::fmt::Write;
use std::time::Duration;

use trypema::{
    AbsoluteLimit, AbuseLimit, AbuseTier, FixedWindowLimit, HardLimitFactor, RateGroupSizeMs, RateLimit,
    RateLimiter, SlidingWindowLimit, SuppressedLimit, TokenBucketLimits, TokenLimit, TrypemaError,
    WindowSizeSeconds,
};
use trypema_testkit::simulator::{Load, Series, Shape};

use crate::panel::{Panel, Scale};
use crate::scene::{Ask, EPOCH, Scene};
use crate::{Drawn, Picture};
use trypema_testkit::svg::{Area, Drawing, Point, thousands};

/// The common limit, expressed for each strategy: 100 in ten seconds.
const CAPACITY: u64 = 100;
const WINDOW_S: u64 = 10;
const WINDOW: Duration = Duration::from_secs(WINDOW_S);
const PER_SECOND: f64 = 10.0;

const BURST: u64 = 150;
const OVERLOAD_PER_SECOND: f64 = 20.0;
const SECONDS: u64 = 40;
/// The time from a window boundary to the burst, so that the effect of alignment is visible.
const INTO_WINDOW: Duration = Duration::from_secs(4);

const WIDTH: u32 = 860;
const HEIGHT: u32 = 556;
const PANEL_WIDTH: f64 = 360.0;
const PANEL_HEIGHT: f64 = 96.0;
const ROW_HEIGHT: f64 = 160.0;
const FIRST_ROW: f64 = 94.0;
const COLUMNS: [f64; 2] = [50.0, 480.0];

/// A strategy with its limit.
struct Subject {
    title: &'static str,
    ask: Box<Ask<'static>>,
}

pub(crate) fn picture() -> Drawn {
    let burst = Load::shaped(Shape::Bursts { size: BURST, every: Duration::from_secs(SECONDS) });
    let loads = [burst, Load::even(OVERLOAD_PER_SECOND)];
    let scene = Scene { start: EPOCH + INTO_WINDOW, loads: &loads, seconds: SECONDS };
    let subjects = subjects()?;
    let series: Vec<Series> = subjects
        .iter()
        .map(|subject| scene.played(subject.ask.as_ref()))
        .collect::<Result<_, TrypemaError>>()?;
    Ok(Picture {
        file_name: "strategies.svg",
        svg: drawn(&subjects, &series),
        markdown: table(&subjects, &series),
    })
}

fn subjects() -> Result<Vec<Subject>, TrypemaError> {
    let rate = RateLimit::try_from(PER_SECOND)?;
    let window = WindowSizeSeconds::try_from(WINDOW_S)?;
    let group = RateGroupSizeMs::try_from(10)?;
    let absolute = AbsoluteLimit::new(rate, window, group);
    let suppressed = SuppressedLimit::new(rate, window, group, HardLimitFactor::default());
    let tokens = TokenBucketLimits::new([TokenLimit::new(CAPACITY, WINDOW)?])?;
    let sliding = SlidingWindowLimit::new(CAPACITY, WINDOW)?;
    let fixed = FixedWindowLimit::new(CAPACITY, WINDOW)?;
    let minute = Duration::from_secs(60);
    let abuse = AbuseLimit::new(
        AbuseTier::new(WINDOW, CAPACITY, Duration::from_secs(15))?,
        AbuseTier::new(minute, 10 * CAPACITY, 10 * minute)?,
    );
    Ok(vec![
        subject("Absolute: 100 in any 10 s", move |rl, key| {
            rl.local().absolute().take(key, &absolute, 1).is_allowed()
        }),
        subject("Suppressed: 10/s on average, at most 200", move |rl, key| {
            let limiter = rl.local().suppressed();
            limiter.take(key, &suppressed, 1).is_allowed()
        }),
        subject("Token bucket: 100, refilled in 10 s", move |rl, key| {
            rl.local().token_bucket().take(key, &tokens, 1).is_allowed()
        }),
        subject("Sliding-window counter: 100 in 10 s", move |rl, key| {
            let limiter = rl.local().sliding_window();
            limiter.take(key, &sliding, 1).is_allowed()
        }),
        subject("Fixed window: 100 in 10 s", move |rl, key| {
            rl.local().fixed_window().take(key, &fixed, 1).is_allowed()
        }),
        subject("Abuse: the 100th in 10 s blocks for 15 s", move |rl, key| {
            rl.local().abuse().take(key, &abuse, 1).is_allowed()
        }),
    ])
}

fn subject(title: &'static str, ask: impl Fn(&RateLimiter, &str) -> bool + 'static) -> Subject {
    Subject { title, ask: Box::new(ask) }
}

fn drawn(subjects: &[Subject], series: &[Series]) -> String {
    let mut drawing = Drawing::new(
        WIDTH,
        HEIGHT,
        "How six strategies admit a burst of 150 calls followed by 20 calls a second",
    );
    heading(&mut drawing);
    for (index, (subject, series)) in subjects.iter().zip(series).enumerate() {
        let panel = panel(index);
        panel.frame(&mut drawing, subject.title);
        panel.admitted_and_denied(&mut drawing, &series.per_second());
        panel.level(&mut drawing, PER_SECOND, "soft");
    }
    for left in COLUMNS {
        let at = Point { x: left + PANEL_WIDTH / 2.0, y: f64::from(HEIGHT) - 12.0 };
        drawing.text(at, "middle", "seconds");
    }
    drawing.finish()
}

fn heading(drawing: &mut Drawing) {
    let at = |x, y| Point { x, y };
    let words =
        format!("A burst of {BURST} calls, then {OVERLOAD_PER_SECOND} calls a second; calls per second");
    drawing.text(at(COLUMNS[0], 22.0), "heading", &words);
    let square = |left| Area { left, top: 37.0, width: 11.0, height: 11.0 };
    let left = COLUMNS[0];
    drawing.rectangle(square(left), "admitted");
    drawing.text(at(left + 17.0, 47.0), "", "admitted");
    drawing.rectangle(square(left + 90.0), "denied");
    drawing.text(at(left + 107.0, 47.0), "", "denied");
    drawing.line(at(left + 168.0, 43.0), at(left + 194.0, 43.0), "soft");
    let limit = format!("the limit, {PER_SECOND}/s");
    drawing.text(at(left + 200.0, 47.0), "", &limit);
}

fn panel(index: usize) -> Panel {
    let (row, column) = (index / COLUMNS.len(), index % COLUMNS.len());
    Panel {
        area: Area {
            left: COLUMNS[column],
            top: FIRST_ROW + ROW_HEIGHT * row as f64,
            width: PANEL_WIDTH,
            height: PANEL_HEIGHT,
        },
        scale: Scale { seconds: SECONDS, seconds_per_tick: WINDOW_S, top: 40, per_tick: 10 },
    }
}

/// Returns the same data as a Markdown table.
fn table(subjects: &[Subject], series: &[Series]) -> String {
    let mut table = String::from(
        "| strategy | first second | 0-10 s | 10-20 s | 20-30 s | 30-40 s | most in any 10 s |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for (subject, series) in subjects.iter().zip(series) {
        let first = series.per_second().first().map_or(0, |tally| tally.admitted);
        let _ = write!(table, "| {} | {first} |", subject.title);
        for window in series.per_window(WINDOW_S as usize) {
            let _ = write!(table, " {} |", window.admitted);
        }
        let _ = writeln!(table, " {} |", thousands(series.worst_window(WINDOW_S)));
    }
    table
}
