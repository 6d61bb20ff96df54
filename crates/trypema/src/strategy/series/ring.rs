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
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The buckets, for looking at; `newest` is the series' newest time, which narrow times count back from.
    #[inline]
    pub(super) fn read(&self, newest: u64) -> Buckets<'_> {
        Buckets { slots: &self.slots, layout: self.layout(), newest }
    }

    /// Appends a bucket. The caller has widened the ring if 32 bits cannot hold it.
    pub(super) fn push(&mut self, stamp: u64, units: u64) {
        let Layout { len, .. } = self.layout();
        let through = self.read(0).through_last().wrapping_add(units);
        if len == self.layout().capacity {
            self.rebuild((len + len / 2).max(FIRST_CAPACITY));
        }
        let layout = Layout { len: len + 1, ..self.layout() };
        self.slots[0] = layout.header();
        let slot = layout.slot(len);
        if layout.is_wide {
            self.slots[slot] = stamp;
            self.slots[slot + 1] = through;
        } else {
            self.slots[slot] = (stamp << 32) | (through & HALF);
        }
    }

    /// Forgets the `count` oldest buckets.
    pub(super) fn drop_front(&mut self, count: usize) {
        let Layout { head, len, capacity, is_wide } = self.layout();
        let left = len.saturating_sub(count);
        if left == 0 {
            self.slots = ThinVec::new();
            return;
        }
        self.slots[0] = Layout { head: (head + count) % capacity, len: left, capacity, is_wide }.header();
        if capacity > SHRINK_ABOVE && left < capacity / 4 {
            self.rebuild(left * 2);
        }
    }

    /// Takes `units` out of bucket `index`.
    pub(super) fn subtract(&mut self, index: usize, units: u64) {
        let layout = self.layout();
        for slot in (index..layout.len).map(|index| layout.slot(index)) {
            if layout.is_wide {
                self.slots[slot + 1] = self.slots[slot + 1].wrapping_sub(units);
            } else {
                let word = self.slots[slot];
                self.slots[slot] = (word & !HALF) | u64::from((word as u32).wrapping_sub(units as u32));
            }
        }
    }

    /// Gives every bucket two words; `newest` as for [`Ring::read`].
    pub(super) fn widen(&mut self, newest: u64) {
        let Layout { len, capacity, is_wide, .. } = self.layout();
        if is_wide || len == 0 {
            return;
        }
        let buckets = self.read(newest);
        let words = (0..len).flat_map(|index| [buckets.stamp(index), buckets.through(index)]);
        let layout = Layout { head: 0, len, capacity, is_wide: true };
        self.slots = layout.filled(words);
    }

    /// Moves the buckets to an allocation for `capacity` of them, oldest first.
    fn rebuild(&mut self, capacity: usize) {
        let old = self.layout();
        let new = Layout { head: 0, len: old.len, capacity, is_wide: old.is_wide };
        let words = (0..old.len).flat_map(|index| {
            let slot = old.slot(index);
            self.slots[slot..slot + old.width()].iter().copied()
        });
        self.slots = new.filled(words);
    }

    #[inline]
    fn layout(&self) -> Layout {
        let header = self.slots.first().copied().unwrap_or(0);
        let is_wide = header & WIDE != 0;
        let slots = self.slots.len().saturating_sub(1);
        Layout {
            head: (header & HALF) as usize,
            len: ((header & !WIDE) >> LEN_SHIFT) as usize,
            capacity: if is_wide { slots / 2 } else { slots },
            is_wide,
        }
    }
}

/// Where the buckets are.
#[derive(Debug, Clone, Copy)]
struct Layout {
    head: usize,
    len: usize,
    capacity: usize,
    is_wide: bool,
}

impl Layout {
    #[inline]
    fn slot(&self, index: usize) -> usize {
        let at = self.head + index;
        let at = if at >= self.capacity { at - self.capacity } else { at };
        1 + if self.is_wide { at * 2 } else { at }
    }

    fn width(&self) -> usize {
        if self.is_wide { 2 } else { 1 }
    }

    fn header(&self) -> u64 {
        let wide = if self.is_wide { WIDE } else { 0 };
        wide | ((self.len as u64) << LEN_SHIFT) | self.head as u64
    }

    /// Slots of this layout that start with `words`.
    fn filled(&self, words: impl Iterator<Item = u64>) -> ThinVec<u64> {
        let size = 1 + self.capacity * self.width();
        let mut slots = ThinVec::with_capacity(size);
        slots.push(self.header());
        slots.extend(words);
        slots.resize(size, 0);
        slots
    }
}

/// The buckets of a ring, by their position from the oldest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Buckets<'a> {
    slots: &'a [u64],
    layout: Layout,
    newest: u64,
}

impl Buckets<'_> {
    pub(super) fn len(&self) -> usize {
        self.layout.len
    }

    /// When bucket `index` had its newest call.
    #[inline]
    pub(super) fn stamp(&self, index: usize) -> u64 {
        let word = self.slots[self.layout.slot(index)];
        if self.layout.is_wide {
            return word;
        }
        let age = (self.newest as u32).wrapping_sub((word >> 32) as u32);
        self.newest.saturating_sub(u64::from(age))
    }

    /// The units in the buckets after `index`.
    #[inline]
    pub(super) fn units_after(&self, index: usize) -> u64 {
        let after = self.through_last().wrapping_sub(self.through(index));
        if self.layout.is_wide { after } else { after & HALF }
    }

    /// How many buckets, counted from the oldest, `leaves` holds for; it holds for a prefix. That is mostly
    /// short, so it is looked for in steps that double.
    #[inline]
    pub(super) fn partition(&self, leaves: impl Fn(usize) -> bool) -> usize {
        let (mut low, mut step) = (0, 1);
        while low + step <= self.len() && leaves(low + step - 1) {
            low += step;
            step *= 2;
        }
        let mut high = self.len().min(low + step - 1);
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

    #[inline]
    fn through(&self, index: usize) -> u64 {
        let slot = self.layout.slot(index);
        if self.layout.is_wide { self.slots[slot + 1] } else { self.slots[slot] & HALF }
    }

    #[inline]
    fn through_last(&self) -> u64 {
        if self.len() == 0 { 0 } else { self.through(self.len() - 1) }
    }
}
