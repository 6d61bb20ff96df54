//! The closed buckets of a series, behind one thin pointer.

use thin_vec::ThinVec;

/// Closed buckets, oldest first, each with the time of its newest call and the units counted up to and
/// including it. Cumulative counts make every question a binary search.
///
/// A bucket takes one word (32 bits of time, 32 bits of count, both wrapping) while that is enough, and two
/// words from the moment it is not. Slot 0 holds where the ring starts, how many buckets it has and how wide
/// they are.
#[derive(Debug, Clone, Default)]
pub(super) struct Ring {
    slots: ThinVec<u64>,
}

/// The first allocation: enough for a key that is called now and then.
const FIRST_CAPACITY: usize = 4;

/// Rings above this give memory back when three quarters of it are unused.
const SHRINK_ABOVE: usize = 16;

const WIDE: u64 = 1 << 63;
const LEN_SHIFT: u32 = 32;
const HALF: u64 = u32::MAX as u64;

impl Ring {
    pub(super) fn len(&self) -> usize {
        ((self.header() & !WIDE) >> LEN_SHIFT) as usize
    }

    /// The time of bucket `index`; `newest` is the series' newest time, which narrow times count back from.
    pub(super) fn stamp(&self, index: usize, newest: u64) -> u64 {
        let slot = self.slot(index);
        if self.is_wide() {
            self.slots[slot]
        } else {
            let low = (self.slots[slot] >> 32) as u32;
            newest.saturating_sub(u64::from((newest as u32).wrapping_sub(low)))
        }
    }

    /// The units in the buckets after `index`.
    pub(super) fn units_after(&self, index: usize) -> u64 {
        let (last, this) = (self.through(self.len() - 1), self.through(index));
        if self.is_wide() {
            last.wrapping_sub(this)
        } else {
            u64::from((last as u32).wrapping_sub(this as u32))
        }
    }

    /// How many buckets, counted from the oldest, `leaves` holds for; it holds for a prefix.
    pub(super) fn partition(&self, leaves: impl Fn(usize) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if leaves(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Appends a bucket. The caller has widened the ring if 32 bits cannot hold it.
    pub(super) fn push(&mut self, stamp: u64, units: u64) {
        let len = self.len();
        let before = if len == 0 { 0 } else { self.through(len - 1) };
        if len == self.capacity() {
            self.rebuild((len + len / 2).max(FIRST_CAPACITY), self.is_wide(), 0);
        }
        self.set_header(self.head(), len + 1, self.is_wide());
        self.put(len, stamp, before.wrapping_add(units));
    }

    /// Forgets the `count` oldest buckets.
    pub(super) fn drop_front(&mut self, count: usize) {
        let left = self.len() - count;
        if left == 0 {
            self.slots = ThinVec::new();
            return;
        }
        self.set_header((self.head() + count) % self.capacity(), left, self.is_wide());
        if self.capacity() > SHRINK_ABOVE && left < self.capacity() / 4 {
            self.rebuild(left * 2, self.is_wide(), 0);
        }
    }

    /// Takes `units` out of bucket `index`.
    pub(super) fn subtract(&mut self, index: usize, units: u64) {
        let is_wide = self.is_wide();
        for at in index..self.len() {
            let slot = self.slot(at);
            if is_wide {
                self.slots[slot + 1] = self.slots[slot + 1].wrapping_sub(units);
            } else {
                let word = self.slots[slot];
                self.slots[slot] = word & !HALF | u64::from((word as u32).wrapping_sub(units as u32));
            }
        }
    }

    /// Gives every bucket two words; `newest` as for [`Ring::stamp`].
    pub(super) fn widen(&mut self, newest: u64) {
        if !self.is_wide() && self.len() > 0 {
            self.rebuild(self.capacity(), true, newest);
        }
    }

    pub(super) fn is_wide(&self) -> bool {
        self.header() & WIDE != 0
    }

    /// Moves the buckets to a new allocation, oldest first.
    fn rebuild(&mut self, capacity: usize, wide: bool, newest: u64) {
        let width = if wide { 2 } else { 1 };
        let mut slots = ThinVec::with_capacity(1 + capacity * width);
        slots.push(0);
        let len = self.len();
        for index in 0..len {
            if wide && !self.is_wide() {
                slots.extend([self.stamp(index, newest), self.through(index)]);
            } else {
                let slot = self.slot(index);
                slots.extend_from_slice(&self.slots[slot..slot + width]);
            }
        }
        slots.resize(1 + capacity * width, 0);
        self.slots = slots;
        self.set_header(0, len, wide);
    }

    fn through(&self, index: usize) -> u64 {
        let slot = self.slot(index);
        if self.is_wide() { self.slots[slot + 1] } else { self.slots[slot] & HALF }
    }

    fn put(&mut self, index: usize, stamp: u64, through: u64) {
        let slot = self.slot(index);
        if self.is_wide() {
            self.slots[slot] = stamp;
            self.slots[slot + 1] = through;
        } else {
            self.slots[slot] = stamp << 32 | through & HALF;
        }
    }

    fn slot(&self, index: usize) -> usize {
        let capacity = self.capacity();
        let mut at = self.head() + index;
        if at >= capacity {
            at -= capacity;
        }
        1 + if self.is_wide() { at * 2 } else { at }
    }

    fn capacity(&self) -> usize {
        let slots = self.slots.len().saturating_sub(1);
        if self.is_wide() { slots / 2 } else { slots }
    }

    fn head(&self) -> usize {
        (self.header() & HALF) as usize
    }

    fn header(&self) -> u64 {
        self.slots.first().copied().unwrap_or(0)
    }

    fn set_header(&mut self, head: usize, len: usize, wide: bool) {
        let wide = if wide { WIDE } else { 0 };
        self.slots[0] = wide | (len as u64) << LEN_SHIFT | head as u64;
    }
}
