//! The numbers of the fixed window: of a length, or of a calendar.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CounterNumbers, SECOND, StrategyNumbers, about};
use crate::rules::compile::Compiler;
use crate::rules::period::Period;
use crate::rules::problem::FieldPath;
use crate::rules::starts::Starts;
use crate::strategy::{CalendarStart, CalendarWindow, FixedWindowLimit, Weekday};

/// The zone of a calendar without `zone`.
const DEFAULT_ZONE: &str = "UTC";

/// The numbers of the fixed window: `window`, or the days, weeks or months of a calendar.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [{"required": ["window"]}, {"required": ["per"]}]))]
#[schemars(extend("dependentRequired" = {"zone": ["per"], "starts": ["per"]}))]
pub struct FixedWindowNumbers {
    /// The most units in a window.
    pub limit: u64,
    /// The length of the window, which starts at every multiple of it since 1970 in UTC. Excludes `per`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Period>,
    /// A window for each day, week or month of a calendar. Excludes `window`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per: Option<CalendarPeriod>,
    /// The time zone of the calendar: an IANA name such as `Europe/Berlin`. Defaults to `UTC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The local time at which windows start: with `per: day` a time such as `06:00` (default `00:00`), with
    /// `per: week` a weekday (default `monday`), with `per: month` a day from 1 to 28 (default 1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts: Option<Starts>,
}

impl From<CounterNumbers> for FixedWindowNumbers {
    fn from(CounterNumbers { limit, window }: CounterNumbers) -> Self {
        Self { limit, window: Some(window), per: None, zone: None, starts: None }
    }
}

/// The length of a calendar's windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CalendarPeriod {
    /// Each day.
    Day,
    /// Each week.
    Week,
    /// Each month.
    Month,
}

impl StrategyNumbers for FixedWindowNumbers {
    type Limit = FixedWindowLimit;

    fn compile(&self, compiler: &mut Compiler<'_>, field: &FieldPath) -> Option<FixedWindowLimit> {
        let known = compiler.problems.count();
        let made = match (self.window, self.per) {
            (Some(Period(window)), None) => {
                let made = compiler.made_of_two((self.limit, window), field, FixedWindowLimit::new);
                self.refuse_without_per(compiler, field);
                made
            }
            (None, Some(per)) => self.calendar(compiler, per, field),
            (given, _) => {
                compiler.made_of_two((self.limit, SECOND), field, FixedWindowLimit::new);
                match given {
                    Some(_) => {
                        compiler.refuse(&field.then("window"), "`window` cannot be combined with `per`")
                    }
                    None => {
                        compiler.refuse(
                            field,
                            "need `window`, such as `window: 1h`, or `per` with one of day, week, month",
                        );
                        self.refuse_without_per(compiler, field);
                    }
                }
                None
            }
        };
        made.filter(|_| compiler.problems.count() == known)
    }
}

impl FixedWindowNumbers {
    /// Refuses fields that only a calendar has.
    fn refuse_without_per(&self, compiler: &mut Compiler<'_>, field: &FieldPath) {
        let given = [("zone", self.zone.is_some()), ("starts", self.starts.is_some())];
        for (name, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
            compiler.refuse(&field.then(name), format!("`{name}` needs `per`: day, week or month"));
        }
    }

    fn calendar(
        &self,
        compiler: &mut Compiler<'_>,
        per: CalendarPeriod,
        field: &FieldPath,
    ) -> Option<FixedWindowLimit> {
        let start = start_of(per, self.starts);
        let start = start.map_err(|reason| compiler.refuse(&field.then("starts"), reason)).ok();
        let zone = self.zone.as_deref().unwrap_or(DEFAULT_ZONE);
        // Each number is tried alone, so that the problems of all are reported.
        let window = CalendarWindow::new(zone, start.unwrap_or(CalendarStart::MIDNIGHT));
        let window = window.map_err(|error| compiler.refuse(&field.then("zone"), error.to_string())).ok();
        let any = CalendarWindow::new(DEFAULT_ZONE, CalendarStart::MIDNIGHT).ok()?;
        let limit = FixedWindowLimit::calendar(self.limit, window.unwrap_or(any));
        let limit = compiler.made(limit.map_err(about), field);
        start.and(window).and(limit)
    }
}

/// Returns the start of windows, or the reason why it does not fit.
fn start_of(per: CalendarPeriod, starts: Option<Starts>) -> Result<CalendarStart, String> {
    let start = starts.map(|Starts(start)| start);
    let (name, need) = match (per, start) {
        (CalendarPeriod::Day, None) => return Ok(CalendarStart::MIDNIGHT),
        (CalendarPeriod::Week, None) => return Ok(CalendarStart::Week(Weekday::Monday)),
        (CalendarPeriod::Month, None) => return Ok(CalendarStart::Month { day: 1 }),
        (CalendarPeriod::Day, Some(start @ CalendarStart::Day { .. }))
        | (CalendarPeriod::Week, Some(start @ CalendarStart::Week(_)))
        | (CalendarPeriod::Month, Some(start @ CalendarStart::Month { .. })) => return Ok(start),
        (CalendarPeriod::Day, Some(_)) => ("day", "a time such as 06:00"),
        (CalendarPeriod::Week, Some(_)) => ("week", "a weekday such as monday"),
        (CalendarPeriod::Month, Some(_)) => ("month", "a day from 1 to 28"),
    };
    let given = start.map(|start| start.to_string()).unwrap_or_default();
    Err(format!("invalid start {given} with `per: {name}`: need {need}"))
}
