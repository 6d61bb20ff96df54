//! Virtual time: a queue of events.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use trypema::clock::{Clock, ManualClock, Timestamp};

/// A receiver of events, such as a client or a fleet.
pub trait Actor {
    /// The type of events.
    type Event;

    /// Handles `event`, which happens now, and schedules the events that follow from it.
    fn on_event(&mut self, event: Self::Event, schedule: &mut Schedule<Self::Event>);
}

/// The position of an actor in the slice given to [`Schedule::run_until`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActorId(pub usize);

/// The future events in order of time, and the clock that they move.
///
/// Events at the same time happen in the order in which they were scheduled, so that a run can be repeated.
#[derive(Debug)]
pub struct Schedule<E> {
    clock: Arc<ManualClock>,
    queue: BinaryHeap<Entry<E>>,
    scheduled: u64,
}

impl<E> Schedule<E> {
    /// Creates an empty schedule that moves `clock`.
    pub fn new(clock: Arc<ManualClock>) -> Self {
        Self { clock, queue: BinaryHeap::new(), scheduled: 0 }
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Schedules `event` for the actor `to` at `when`, or now if `when` has passed.
    pub fn at(&mut self, when: Timestamp, to: ActorId, event: E) {
        let entry = Entry { when: when.max(self.now()), turn: self.scheduled, to, event };
        self.scheduled += 1;
        self.queue.push(entry);
    }

    /// Runs all events before `end`, and leaves the clock at `end`.
    pub fn run_until<A: Actor<Event = E>>(&mut self, end: Timestamp, actors: &mut [A]) {
        while self.queue.peek().is_some_and(|next| next.when < end) {
            if let Some(next) = self.queue.pop() {
                self.clock.set(next.when);
                actors[next.to.0].on_event(next.event, self);
            }
        }
        self.clock.set(end);
    }
}

#[derive(Debug)]
struct Entry<E> {
    when: Timestamp,
    turn: u64,
    to: ActorId,
    event: E,
}

/// Reversed: the heap returns its greatest element first, and the earliest event has to come first.
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.when, other.turn).cmp(&(self.when, self.turn))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Records its events, and answers `ping` to its peer after a delay.
    struct Player {
        peer: ActorId,
        heard: Vec<(u64, &'static str)>,
    }

    impl Actor for Player {
        type Event = &'static str;

        fn on_event(&mut self, event: &'static str, schedule: &mut Schedule<&'static str>) {
            let now = schedule.now();
            self.heard.push((now.as_micros(), event));
            if event == "ping" {
                schedule.at(now + Duration::from_micros(7), self.peer, "pong");
            }
        }
    }

    fn players() -> [Player; 2] {
        [ActorId(1), ActorId(0)].map(|peer| Player { peer, heard: Vec::new() })
    }

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn events_happen_in_order_of_time_then_of_scheduling() {
        let mut schedule = Schedule::new(Arc::new(ManualClock::starting_at(at(100))));
        let mut players = players();
        schedule.at(at(120), ActorId(0), "second");
        schedule.at(at(120), ActorId(0), "third");
        schedule.at(at(110), ActorId(0), "ping");
        schedule.at(at(5), ActorId(0), "past");
        schedule.run_until(at(200), &mut players);

        let expected = [(100, "past"), (110, "ping"), (120, "second"), (120, "third")];
        assert_eq!(players[0].heard, expected);
        assert_eq!(players[1].heard, [(117, "pong")]);
    }

    #[test]
    fn the_end_is_not_part_of_a_run_and_the_rest_waits() {
        let mut schedule = Schedule::new(Arc::new(ManualClock::starting_at(at(0))));
        let mut players = players();
        schedule.at(at(50), ActorId(1), "later");
        schedule.run_until(at(50), &mut players);
        assert!(players[1].heard.is_empty());
        assert_eq!(schedule.now(), at(50));
        schedule.run_until(at(51), &mut players);
        assert_eq!(players[1].heard, [(50, "later")]);
    }
}
