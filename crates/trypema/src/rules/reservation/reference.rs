//! The two names of a reservation.

use std::sync::Arc;

use super::name::{CounterName, Outstanding, name_of};
use super::valid_id;
use crate::error::TrypemaError;
use crate::rules::plan::Plan;
use crate::rules::request::Request;
use crate::rules::set::RuleSet;

/// Names a reservation, to settle, release or renew it.
///
/// ```
/// use trypema::rules::{Request, ReservationRef};
///
/// let ann = [("user", "ann")];
/// let by_text = ReservationRef::from("r1.kGxpbWl0aW5nLWlzLWZ1bg");
/// let by_id = ReservationRef::of_id("9f1c2a", Request::new(&ann));
/// # let _ = (by_text, by_id);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ReservationRef<'a>(Name<'a>);

#[derive(Debug, Clone, Copy)]
enum Name<'a> {
    Text(&'a str),
    Id { id: &'a str, request: Request<'a> },
}

impl<'a> ReservationRef<'a> {
    /// Names a reservation by the id that its caller chose, and the attributes of its request. The costs do not matter.
    ///
    /// A caller that lost the answer, and so the text, ends its reservation by this name. The rules in force say which
    /// counters it may have: those that do not know it are
    /// [`NotOutstanding`](super::SettledStatus::NotOutstanding).
    pub fn of_id(id: &'a str, request: Request<'a>) -> Self {
        Self(Name::Id { id, request })
    }

    pub(in crate::rules) fn outstanding(self, set: Arc<RuleSet>) -> Result<Outstanding, TrypemaError> {
        let (id, request) = match self.0 {
            Name::Text(text) => return Outstanding::read(text),
            Name::Id { id, request } => (id, request),
        };
        valid_id(id)?;
        let plan = Plan::for_ending(set, &request)?;
        let checks = plan.all_checks();
        let name = |(check, outcome): (&crate::check::Check<'_>, &usize)| CounterName {
            key: check.key.to_owned(),
            is_shadow: plan.is_shadow(*outcome),
            kept_until: None,
        };
        let counters = checks.checks.iter().zip(&checks.outcomes).map(name).collect();
        Ok(Outstanding { id: name_of(Some(id), &request).id, counters })
    }
}

impl<'a> From<&'a str> for ReservationRef<'a> {
    /// Names a reservation by its [text](super::Reservation::text).
    fn from(text: &'a str) -> Self {
        Self(Name::Text(text))
    }
}

impl<'a> From<&'a String> for ReservationRef<'a> {
    fn from(text: &'a String) -> Self {
        Self(Name::Text(text))
    }
}
