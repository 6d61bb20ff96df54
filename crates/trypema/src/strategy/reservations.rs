//! The table of a key's reservations: units that a holder keeps until it settles or releases them, or until
//! they expire.
//!
//! The concurrency strategy is nothing but such a table. For the other strategies the table stands beside the
//! counter, and records the units that each reservation can still refund. The Lua twin is `reservations.lua`.
#![cfg_attr(not(feature = "rules"), allow(dead_code, reason = "only rules reserve under an id"))]

mod attempts;

use std::time::Duration;

#[cfg(feature = "_redis")]
pub(crate) use attempts::MAX_CONFIRMATIONS;
#[cfg(feature = "rules")]
pub(crate) use attempts::{ReserveAttempt, Undoing};

use super::Origin;
use crate::clock::Timestamp;

/// The most entries of a table: enough for thousands of requests in flight, and few enough that a script
/// reads and writes the table in about a millisecond.
pub(crate) const MAX_ENTRIES: usize = 4_096;

/// The longest time for which units are reserved without a renewal. A holder that dies keeps its units no
/// longer than that.
pub(crate) const MAX_HOLD: Duration = Duration::from_secs(60 * 60);

/// The id of a reservation: 128 bits. The first one tells whether the caller chose the id; if not, nobody can
/// guess it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ReservationId(pub(crate) [u8; 16]);

impl ReservationId {
    /// The id of units that were taken without one: those of a plain take of the concurrency strategy.
    pub(crate) const ANONYMOUS: Self = Self([0; 16]);

    /// Returns an id of these bits that the caller did not choose.
    pub(crate) fn random(mut bits: [u8; 16]) -> Self {
        bits[0] &= !1;
        // The chance that random bits are those of `ANONYMOUS` is that of guessing an id.
        Self(bits)
    }

    /// Returns an id of these bits, which are a digest of what the caller chose.
    pub(crate) fn chosen(mut bits: [u8; 16]) -> Self {
        bits[0] |= 1;
        Self(bits)
    }

    /// Whether the caller chose the id. A settled reservation is remembered then until it would have expired,
    /// so that a repeated request does not spend again.
    pub(crate) fn is_chosen(self) -> bool {
        self.0[0] & 1 == 1
    }
}

/// One entry of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) id: ReservationId,
    /// A digest of the request that made the reservation. The same name with another request is a conflict.
    pub(crate) request: u64,
    /// The number of an attempt that made or found the reservation; 0 if nothing undoes it.
    pub(crate) attempt: u64,
    /// The reserved units or, once settled, those that were really spent.
    pub(crate) units: u64,
    /// The time at which the counter recorded the units.
    pub(crate) recorded: Timestamp,
    /// The count that the units joined.
    pub(crate) origin: Origin,
    /// The entry is forgotten from then on. Each counter has a table of its own, so slots can end before money does.
    pub(crate) expires_at: Timestamp,
    pub(crate) state: EntryState,
}

/// The meaning of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryState {
    /// The holder keeps the units.
    Open = 0,
    /// The holder has settled or released them.
    Settled = 1,
    /// The attempt was undone. The entry holds nothing, and remembers it.
    Undone = 2,
    /// The attempt found the reservation that another one had made. The entry itself holds nothing.
    Confirmed = 3,
}

impl EntryState {
    #[cfg(feature = "_redis")]
    fn of_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Open),
            1 => Some(Self::Settled),
            2 => Some(Self::Undone),
            3 => Some(Self::Confirmed),
            _ => None,
        }
    }
}

impl Entry {
    /// Returns an entry without a name.
    pub(crate) fn anonymous(units: u64, recorded: Timestamp, expires_at: Timestamp) -> Self {
        Self {
            id: ReservationId::ANONYMOUS,
            request: 0,
            attempt: 0,
            units,
            recorded,
            origin: Origin::default(),
            expires_at,
            state: EntryState::Open,
        }
    }

    fn is_live(&self, now: Timestamp) -> bool {
        now < self.expires_at
    }

    /// Whether this is the reservation with this id itself, settled or not.
    fn is_reservation(&self, id: ReservationId) -> bool {
        self.id == id && matches!(self.state, EntryState::Open | EntryState::Settled)
    }

    /// Whether the entry only remembers something, and is forgotten where a table is full.
    fn makes_room(&self) -> bool {
        matches!(self.state, EntryState::Settled | EntryState::Undone)
    }

    fn is_open(&self, id: ReservationId) -> bool {
        self.id == id && self.state == EntryState::Open
    }

    fn held(&self) -> u64 {
        match self.state {
            EntryState::Open => self.units,
            EntryState::Settled | EntryState::Undone | EntryState::Confirmed => 0,
        }
    }

    /// Whether no entry that was made by `now`, nor a lease that ends up to `hold_us` later, could look like
    /// this one: the clock went back by more than `hold_us`.
    ///
    /// An entry that was made in time expires at the time that was returned to its holder, even if the limit
    /// has got a much shorter hold since. A renewed entry shows the step by its expiry alone.
    fn is_from_the_future(&self, now: Timestamp, hold_us: u64) -> bool {
        let (now, recorded, expires_at) =
            (now.as_micros(), self.recorded.as_micros(), self.expires_at.as_micros());
        let longest_us = MAX_HOLD.as_micros() as u64;
        expires_at > now + 2 * hold_us
            && (recorded > now + hold_us || expires_at > now + hold_us + longest_us)
    }

    /// Returns the time at which the entry expires, after the repair of a clock that went back.
    fn repaired_expiry(&self, now: Timestamp, hold_us: u64) -> Timestamp {
        match self.is_from_the_future(now, hold_us) {
            true => Timestamp::derived(now.as_micros() + hold_us),
            false => self.expires_at,
        }
    }
}

/// The reservations of one key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReservationTable {
    /// In the order in which they expire; of those that expire at the same time, in the order in which they
    /// were made. So what has expired is at the front, however many entries follow.
    entries: Vec<Entry>,
    /// The sum of the units that the entries hold.
    held: u64,
}

impl ReservationTable {
    /// Returns the units that are held at `now`.
    pub(crate) fn held(&self, now: Timestamp) -> u64 {
        match self.expired(now) {
            0 => self.held,
            _ => sum_of_held(self.live(now)),
        }
    }

    /// Whether nothing was reserved, or everything was released.
    #[cfg(feature = "rules")]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether another entry has room at `now`. In a full table, it takes the place of a settled one or of a mark.
    pub(crate) fn has_room(&self, now: Timestamp) -> bool {
        let live = self.live(now);
        live.len() < MAX_ENTRIES || live.iter().any(Entry::makes_room)
    }

    /// Returns the reservation with this id, unless it has expired.
    pub(crate) fn find(&self, id: ReservationId, now: Timestamp) -> Option<&Entry> {
        self.live(now).iter().find(|entry| entry.is_reservation(id))
    }

    /// Returns the reservations that are neither settled nor expired.
    pub(crate) fn holders(&self, now: Timestamp) -> impl Iterator<Item = &Entry> {
        self.live(now)
            .iter()
            .filter(|entry| entry.state == EntryState::Open && entry.id != ReservationId::ANONYMOUS)
    }

    fn live(&self, now: Timestamp) -> &[Entry] {
        &self.entries[self.expired(now)..]
    }

    /// Returns the number of entries that have expired.
    fn expired(&self, now: Timestamp) -> usize {
        match self.entries.first() {
            Some(first) if !first.is_live(now) => self.entries.partition_point(|entry| !entry.is_live(now)),
            _ => 0,
        }
    }

    /// Returns the time at which every entry has expired.
    pub(crate) fn latest_expiry(&self) -> Timestamp {
        self.entries.last().map(|entry| entry.expires_at).unwrap_or_default()
    }

    /// Forgets the entries that have expired.
    pub(crate) fn forget_expired(&mut self, now: Timestamp) {
        let expired = self.expired(now);
        if expired > 0 {
            self.entries.drain(..expired);
            self.held = sum_of_held(&self.entries);
        }
    }

    /// Returns the time at which every entry has expired, if the clock stays at `now` or goes on from there.
    pub(crate) fn latest_expiry_at(&self, now: Timestamp, hold_us: u64) -> Timestamp {
        if !self.is_stepped_back(now, hold_us) {
            return self.latest_expiry();
        }
        self.entries.iter().map(|entry| entry.repaired_expiry(now, hold_us)).max().unwrap_or_default()
    }

    /// Whether an entry was made in the future: the clock went back by more than `hold_us`.
    pub(crate) fn is_stepped_back(&self, now: Timestamp, hold_us: u64) -> bool {
        let may_be = self.latest_expiry().as_micros() > now.as_micros() + 2 * hold_us;
        may_be && self.entries.iter().any(|entry| entry.is_from_the_future(now, hold_us))
    }

    /// Lets entries that were made in the future expire `hold_us` after `now`.
    pub(crate) fn step_back(&mut self, now: Timestamp, hold_us: u64) {
        for entry in &mut self.entries {
            entry.expires_at = entry.repaired_expiry(now, hold_us);
        }
        self.entries.sort_by_key(|entry| entry.expires_at);
    }

    /// Adds an entry. Units without a name join the entry before them, if that was recorded and expires at the
    /// same time: so callers at one time share an entry.
    ///
    /// In a full table, the settled entry or mark that expires first is forgotten: if its request is repeated or still
    /// arrives, it counts, which is stricter.
    ///
    /// A take without a name needs no room. In a full table, its units join the last units without a name, and all of them
    /// expire at the later time. So a table never has more than one entry too many.
    pub(crate) fn insert(&mut self, mut entry: Entry) {
        if self.entries.len() >= MAX_ENTRIES
            && let Some(settled) = self.entries.iter().position(Entry::makes_room)
        {
            self.entries.remove(settled);
        }
        self.held = self.held.saturating_add(entry.held());
        if let Some(index) = self.joined_by(&entry) {
            let joined = self.entries.remove(index);
            let expires_at = joined.expires_at.max(entry.expires_at);
            entry = Entry { units: joined.units + entry.units, expires_at, ..joined };
        }
        if self.entries.capacity() == 0 {
            // Most keys have one holder at a time: the first entry takes no room for others.
            self.entries = Vec::with_capacity(1);
        }
        self.entries.insert(self.place_of(&entry), entry);
    }

    /// Returns the place of a new entry: after all that expire no later.
    fn place_of(&self, entry: &Entry) -> usize {
        match self.entries.last() {
            Some(last) if last.expires_at > entry.expires_at => {
                self.entries.partition_point(|other| other.expires_at <= entry.expires_at)
            }
            _ => self.entries.len(),
        }
    }

    /// Returns the index of the entry that the units of a new one join, if they do.
    fn joined_by(&self, new: &Entry) -> Option<usize> {
        if new.id != ReservationId::ANONYMOUS {
            return None;
        }
        let is_anonymous = |entry: &Entry| entry.id == ReservationId::ANONYMOUS;
        if self.entries.len() >= MAX_ENTRIES {
            return self.entries.iter().rposition(is_anonymous);
        }
        let before = self.place_of(new).checked_sub(1)?;
        let other = self.entries.get(before).filter(|other| is_anonymous(other))?;
        ((other.recorded, other.expires_at) == (new.recorded, new.expires_at)).then_some(before)
    }

    /// Ends a reservation, and remembers that `units` were really spent if the caller chose its id, or if
    /// `is_remembered`.
    pub(crate) fn settle(&mut self, id: ReservationId, units: u64, is_remembered: bool) {
        if id.is_chosen() {
            self.forget_attempts(id);
        }
        match self.entries.iter_mut().find(|entry| entry.is_reservation(id)) {
            Some(entry) if id.is_chosen() || is_remembered => {
                self.held = self.held.saturating_sub(entry.held());
                (entry.units, entry.state) = (units, EntryState::Settled);
            }
            _ => self.forget(id),
        }
    }

    /// Removes a reservation.
    fn forget(&mut self, id: ReservationId) {
        let Some(index) = self.entries.iter().position(|entry| entry.is_reservation(id)) else { return };
        self.held = self.held.saturating_sub(self.entries.remove(index).held());
        if self.entries.is_empty() {
            *self = Self::default();
        }
    }

    /// Lets a reservation expire at another time.
    pub(crate) fn renew(&mut self, id: ReservationId, expires_at: Timestamp) {
        self.forget_attempts(id);
        if let Some(index) = self.entries.iter().position(|entry| entry.is_reservation(id)) {
            let renewed = Entry { expires_at, ..self.entries.remove(index) };
            self.entries.insert(self.place_of(&renewed), renewed);
        }
    }

    /// Gives back anonymous units that were recorded at `recorded`, or those that expire first. Returns their
    /// number.
    pub(crate) fn release_anonymous(
        &mut self,
        mut units: u64,
        recorded: Option<Timestamp>,
        now: Timestamp,
    ) -> u64 {
        self.forget_expired(now);
        let mut released = 0;
        for entry in &mut self.entries {
            let is_meant = recorded.is_none_or(|recorded| entry.recorded == recorded);
            if entry.id == ReservationId::ANONYMOUS && is_meant {
                let part = units.min(entry.units);
                entry.units -= part;
                units -= part;
                released += part;
            }
        }
        self.entries.retain(|entry| entry.id != ReservationId::ANONYMOUS || entry.units > 0);
        self.held = sum_of_held(&self.entries);
        released
    }
}

fn sum_of_held(entries: &[Entry]) -> u64 {
    entries.iter().map(Entry::held).fold(0, u64::saturating_add)
}

/// The length of an encoded entry.
#[cfg(feature = "_redis")]
pub(crate) const ENTRY_BYTES: usize = 69;

#[cfg(feature = "_redis")]
impl Entry {
    /// Reads an entry, which `live_entries` in reservations.lua wrote. Returns `None` if it is malformed.
    pub(crate) fn read(reply: &mut super::ReplyReader<'_>) -> Option<Self> {
        let id = ReservationId(reply.bytes(16)?.try_into().ok()?);
        let request = u64::from_le_bytes(reply.bytes(8)?.try_into().ok()?);
        let attempt = u64::from_le_bytes(reply.bytes(8)?.try_into().ok()?);
        let (units, recorded) = (reply.count()?, Timestamp::derived(reply.count()?));
        let origin = Origin { window_end: reply.count()?, count: reply.word()? };
        let expires_at = Timestamp::derived(reply.count()?);
        let state = EntryState::of_number(reply.byte()?)?;
        Some(Self { id, request, attempt, units, recorded, origin, expires_at, state })
    }
}
