//! Fixed windows: of a length, or of a calendar.

use super::{Compiler, SECOND, about};
use crate::rules::definition::{CalendarPeriod, CounterNumbers, FixedWindowNumbers};
use crate::rules::period::Period;
use crate::rules::problem::FieldPath;
use crate::rules::starts::Starts;
use crate::strategy::{CalendarStart, CalendarWindow, FixedWindowLimit, Weekday};

/// The zone of a calendar without `zone`.
const DEFAULT_ZONE: &str = "UTC";

impl Compiler<'_> {
    pub(super) fn fixed_window(
        &mut self,
        numbers: &FixedWindowNumbers,
        field: &FieldPath,
    ) -> Option<FixedWindowLimit> {
        let FixedWindowNumbers { limit, window, per, .. } = numbers;
        let counter = |window| CounterNumbers { limit: *limit, window };
        let known = self.problems.count();
        let made = match (window, per) {
            (Some(window), None) => {
                let made = self.counter(&counter(*window), field, FixedWindowLimit::new);
                self.refuse_without_per(numbers, field);
                made
            }
            (None, Some(per)) => self.calendar(numbers, *per, field),
            (given, _) => {
                self.counter(&counter(Period(SECOND)), field, FixedWindowLimit::new);
                match given {
                    Some(_) => self.refuse(&field.then("window"), "`window` cannot be combined with `per`"),
                    None => {
                        self.refuse(
                            field,
                            "need `window`, such as `window: 1h`, or `per` with one of day, week, month",
                        );
                        self.refuse_without_per(numbers, field);
                    }
                }
                None
            }
        };
        made.filter(|_| self.problems.count() == known)
    }

    /// Refuses fields that only a calendar has.
    fn refuse_without_per(&mut self, numbers: &FixedWindowNumbers, field: &FieldPath) {
        let given = [("zone", numbers.zone.is_some()), ("starts", numbers.starts.is_some())];
        for (name, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
            self.refuse(&field.then(name), format!("`{name}` needs `per`: day, week or month"));
        }
    }

    fn calendar(
        &mut self,
        numbers: &FixedWindowNumbers,
        per: CalendarPeriod,
        field: &FieldPath,
    ) -> Option<FixedWindowLimit> {
        let start = start_of(per, numbers.starts);
        let start = start.map_err(|reason| self.refuse(&field.then("starts"), reason)).ok();
        let zone = numbers.zone.as_deref().unwrap_or(DEFAULT_ZONE);
        // Each number is tried alone, so that the problems of all are reported.
        let window = CalendarWindow::new(zone, start.unwrap_or(CalendarStart::MIDNIGHT));
        let window = window.map_err(|error| self.refuse(&field.then("zone"), error.to_string())).ok();
        let any = CalendarWindow::new(DEFAULT_ZONE, CalendarStart::MIDNIGHT).ok()?;
        let limit = FixedWindowLimit::calendar(numbers.limit, window.unwrap_or(any));
        let limit = self.made(limit.map_err(about), field);
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
