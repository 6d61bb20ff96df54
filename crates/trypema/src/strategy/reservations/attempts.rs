//! Attempts to make a reservation, and undoing them.
//!
//! A caller whose answer was lost does not know whether its attempt made the reservation. It may repeat the request
//! under the same id, and the first attempt may still arrive after the second one. So the units stay reserved as long
//! as there is one attempt that made or found the reservation and that was not undone:
//!
//! - The entry carries the number of the attempt that made it. Every other attempt that finds it adds a confirmation.
//! - Undoing an attempt removes its confirmation. If the attempt made the entry, a confirmation takes its place; without
//!   one, the entry is removed.
//! - A mark remembers the undone attempt. If it arrives later, or a second time, it reserves nothing.
//! - A holder that renews a reservation has been answered. Nothing undoes it any more, nor one that was settled.
//!
//! The Lua twin is `attempts.lua`.

use super::{Entry, EntryState, ReservationId, ReservationTable};
use crate::clock::Timestamp;
use crate::strategy::Origin;

/// The most confirmations of a reservation: more repetitions than any caller makes. A reservation that was found more
/// often is no longer undone, which is stricter.
pub(crate) const MAX_CONFIRMATIONS: usize = 8;

/// The number of no attempt.
const NO_ATTEMPT: u64 = 0;

/// An attempt to make a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReserveAttempt {
    pub(crate) id: ReservationId,
    /// Unique among the attempts with this id, and not [`NO_ATTEMPT`].
    pub(crate) number: u64,
}

/// The effect of undoing an attempt on a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Undoing {
    /// The attempt alone held these units.
    Removed(Entry),
    /// The attempt held nothing, or another one holds the same units.
    Kept,
    /// The table has no room to remember the attempt, which may still arrive.
    NoRoom,
}

impl ReserveAttempt {
    fn is_of(self, entry: &Entry, state: EntryState) -> bool {
        entry.id == self.id && entry.attempt == self.number && entry.state == state
    }
}

impl ReservationTable {
    /// Whether the attempt was undone.
    pub(crate) fn is_undone(&self, attempt: ReserveAttempt, now: Timestamp) -> bool {
        self.live(now).iter().any(|entry| attempt.is_of(entry, EntryState::Undone))
    }

    /// Notes that an attempt has found an open reservation.
    pub(crate) fn confirm(&mut self, attempt: ReserveAttempt, now: Timestamp) {
        self.forget_expired(now);
        let has_room = self.has_room(now);
        let count = self.confirmations(attempt.id).count();
        let is_known = self.confirmations(attempt.id).any(|entry| entry.attempt == attempt.number);
        let Some(open) = self.entries.iter_mut().find(|entry| entry.is_open(attempt.id)) else { return };
        if is_known || [attempt.number, NO_ATTEMPT].contains(&open.attempt) {
            return;
        }
        if count == MAX_CONFIRMATIONS || !has_room {
            open.attempt = NO_ATTEMPT;
            return;
        }
        let confirmation = Entry { attempt: attempt.number, units: 0, state: EntryState::Confirmed, ..*open };
        self.insert(confirmation);
    }

    /// Undoes an attempt, and remembers until `marked_until` that it was undone, if it may still arrive.
    pub(crate) fn undo(
        &mut self,
        attempt: ReserveAttempt,
        marked_until: Option<Timestamp>,
        now: Timestamp,
    ) -> Undoing {
        self.forget_expired(now);
        if self.is_undone(attempt, now) {
            return Undoing::Kept;
        }
        let made = self.entries.iter().position(|entry| attempt.is_of(entry, EntryState::Open));
        let other = self.entries.iter().position(|entry| {
            entry.id == attempt.id && entry.state == EntryState::Confirmed && entry.attempt != attempt.number
        });
        let removed = match (made, other) {
            (Some(made), Some(other)) => {
                self.entries[made].attempt = self.entries[other].attempt;
                self.entries.remove(other);
                None
            }
            (Some(made), None) => {
                let entry = self.entries.remove(made);
                self.held = self.held.saturating_sub(entry.held());
                Some(entry)
            }
            (None, _) => {
                self.entries.retain(|entry| !attempt.is_of(entry, EntryState::Confirmed));
                None
            }
        };
        let has_room = self.has_room(now);
        if let Some(expires_at) = marked_until.filter(|_| has_room) {
            let ReserveAttempt { id, number: attempt } = attempt;
            let (origin, state) = (Origin::default(), EntryState::Undone);
            self.insert(Entry {
                id,
                request: 0,
                attempt,
                units: 0,
                recorded: now,
                origin,
                expires_at,
                state,
            });
        }
        match removed {
            Some(entry) => Undoing::Removed(entry),
            None if marked_until.is_some() && !has_room => Undoing::NoRoom,
            None => Undoing::Kept,
        }
    }

    /// Lets nothing undo a reservation any more, because its holder has been answered.
    pub(super) fn forget_attempts(&mut self, id: ReservationId) {
        if id.is_chosen() {
            // Of a caller that waits under a random id, a confirmation may be left. It holds nothing, and expires.
            self.entries.retain(|entry| entry.id != id || entry.state != EntryState::Confirmed);
        }
        if let Some(open) = self.entries.iter_mut().find(|entry| entry.is_open(id)) {
            open.attempt = NO_ATTEMPT;
        }
    }

    fn confirmations(&self, id: ReservationId) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.id == id && entry.state == EntryState::Confirmed)
    }
}
