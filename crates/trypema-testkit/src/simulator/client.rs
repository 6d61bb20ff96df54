//! A client: it makes calls according to its traffic, and records the answers.

use trypema::clock::Timestamp;

use super::keys::{KeyPicker, Keys};
use super::record::Series;
use super::schedule::{Actor, ActorId, Schedule};
use super::traffic::{Arrivals, Shape, Spacing};
use crate::random::Random;

/// The traffic of a client.
///
/// ```
/// use trypema_testkit::simulator::{Keys, Load, Shape, Spacing};
///
/// let many_users = Load {
///     spacing: Spacing::Poisson,
///     keys: Keys::Zipf { count: 1_000, exponent: 1.0 },
///     ..Load::even(200.0)
/// };
/// assert_eq!(many_users.shape, Shape::Steady { per_second: 200.0 });
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// The rate over time.
    pub shape: Shape,
    /// The distribution of calls around the times at which they are due.
    pub spacing: Spacing,
    /// The distribution of calls over keys.
    pub keys: Keys,
}

impl Load {
    /// Returns `per_second` calls for one key, evenly spaced.
    pub fn even(per_second: f64) -> Self {
        Self::shaped(Shape::Steady { per_second })
    }

    /// Returns calls of this shape for one key, exactly when they are due.
    pub fn shaped(shape: Shape) -> Self {
        Self { shape, spacing: Spacing::Even, keys: Keys::One }
    }
}

/// The only event of a client.
#[derive(Debug)]
pub(super) struct CallIsDue;

/// A function that decides whether a call for a key is admitted.
pub(super) type Ask<'a> = Box<dyn FnMut(&str) -> bool + 'a>;

/// The traffic of a client, and the function that decides its calls.
pub(super) struct Plan<'a> {
    pub(super) load: Load,
    pub(super) ask: Ask<'a>,
    pub(super) random: Random,
}

/// The start and the end of a simulation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
}

pub(super) struct Client<'a> {
    me: ActorId,
    span: Span,
    arrivals: Arrivals,
    keys: KeyPicker,
    random: Random,
    ask: Ask<'a>,
    /// The calls, per key.
    series: Vec<Series>,
}

impl<'a> Client<'a> {
    pub(super) fn new(me: ActorId, plan: Plan<'a>, span: Span) -> Self {
        let Plan { load, ask, mut random } = plan;
        let timing = Random::seeded(random.next_u64());
        let keys = KeyPicker::new(load.keys);
        Self {
            me,
            span,
            arrivals: Arrivals::new(load.shape, load.spacing, timing),
            series: vec![Series::new(span.start); keys.count()],
            keys,
            random,
            ask,
        }
    }

    pub(super) fn schedule_next(&mut self, schedule: &mut Schedule<CallIsDue>) {
        let Span { start, end } = self.span;
        if let Some(offset_us) = self.arrivals.next_before(end.as_micros() - start.as_micros()) {
            let when = Timestamp::from_micros(start.as_micros() + offset_us);
            schedule.at(when, self.me, CallIsDue);
        }
    }

    pub(super) fn into_series(self) -> Vec<Series> {
        self.series
    }
}

impl Actor for Client<'_> {
    type Event = CallIsDue;

    fn on_event(&mut self, CallIsDue: CallIsDue, schedule: &mut Schedule<CallIsDue>) {
        let now = schedule.now();
        let key = self.keys.pick(&mut self.random);
        self.series[key].offer(now);
        if (self.ask)(self.keys.name(key)) {
            self.series[key].admit(now);
        }
        self.schedule_next(schedule);
    }
}
