//! A client: it calls when its traffic says so and writes down the answers.

use trypema::clock::Timestamp;

use super::keys::{KeyPicker, Keys};
use super::record::Series;
use super::schedule::{Actor, ActorId, Schedule};
use super::traffic::{Arrivals, Shape, Spacing};
use crate::random::Random;

/// What a client offers.
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
    /// How the rate moves.
    pub shape: Shape,
    /// How calls fall around the times at which they are due.
    pub spacing: Spacing,
    /// How they spread over keys.
    pub keys: Keys,
}

impl Load {
    /// `per_second` calls for one key, evenly spaced.
    pub fn even(per_second: f64) -> Self {
        Self::shaped(Shape::Steady { per_second })
    }

    /// Calls of this shape for one key, exactly when they are due.
    pub fn shaped(shape: Shape) -> Self {
        Self { shape, spacing: Spacing::Even, keys: Keys::One }
    }
}

/// What happens to a client.
#[derive(Debug)]
pub(super) struct CallIsDue;

/// Asks whether a call for a key is admitted.
pub(super) type Ask<'a> = Box<dyn FnMut(&str) -> bool + 'a>;

/// What a client offers, and whom it asks.
pub(super) struct Plan<'a> {
    pub(super) load: Load,
    pub(super) ask: Ask<'a>,
    pub(super) random: Random,
}

/// When a simulation begins and when it ends.
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
    /// What happened, per key.
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
