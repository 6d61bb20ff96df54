//! The closed buckets of a series, behind one thin pointer.

use thin_vec::ThinVec;

/// A ring of closed buckets, oldest first. Each bucket has the time of its newest call, and the units counted
/// up to and including it. The counts are cumulative, so every query is a binary search.
///
/// A bucket takes one word (32 bits of time and 32 bits of count, both wrapping) while that suffices, and two
/// words from then on. Slot 0 holds the start of the ring, the numbers of buckets and their width. The newest
/// buckets are *staged* in the slots after it, on the same cache line, and move to the ring itself together: to append a
/// bucket to a long ring usually touches no other line. Every full block of 256 buckets is followed by one word, which
/// is subtracted from each of the block's counts. So a refund changes a few hundred words at most, however many
/// buckets follow.
#[derive(Debug, Clone, Default)]
pub(super) struct Ring {
    slots: ThinVec<u64>,
}

/// The number of slots for staged buckets: enough for a key with few calls.
const STAGING: usize = 6;

/// The capacity up to which a ring doubles. A longer one grows by half, to waste less.
const DOUBLES_TO: usize = 256;

/// The capacity above which a ring releases memory when three quarters of it are unused.
const SHRINK_ABOVE: usize = 16;

/// The number of buckets that share one offset.
const BLOCK: usize = 256;

const WIDE: u64 = 1 << 63;
/// Set if some block has an offset to subtract.
const HAS_OFFSETS: u64 = 1 << 62;
/// The number of staged buckets takes three bits.
const STAGED_SHIFT: u32 = 59;
const STAGED: u64 = 7 << STAGED_SHIFT;
const LEN_SHIFT: u32 = 32;
const HALF: u64 = u32::MAX as u64;

impl Ring {
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns a ring of buckets, given as pairs of time and units.
    pub(super) fn of(buckets: impl ExactSizeIterator<Item = (u64, u64)>, is_wide: bool) -> Self {
        let len = buckets.len();
        let layout = Layout { head: 0, len, staged: 0, capacity: len, is_wide, has_offsets: false };
        let mut through = 0_u64;
        let counted = buckets.map(|(stamp, units)| {
            through = through.wrapping_add(units);
            (stamp, through)
        });
        Self { slots: layout.filled(counted) }
    }

    pub(super) fn is_wide(&self) -> bool {
        self.layout().is_wide
    }

    /// Returns a reader of the buckets. `newest` is the series' newest time, from which narrow times count
    /// back. `closed` is the units in force. If that is less than was counted, the oldest units were
    /// refunded.
    #[inline]
    pub(super) fn read(&self, newest: u64, closed: u64) -> Buckets<'_> {
        Buckets { slots: &self.slots, layout: self.layout(), newest, closed }
    }

    /// Returns a reader that ignores refunds of the oldest units.
    fn counted(&self, newest: u64) -> Buckets<'_> {
        self.read(newest, u64::MAX)
    }

    /// Appends a bucket. The caller has widened the ring if 32 bits are too few for it.
    pub(super) fn push(&mut self, stamp: u64, units: u64) {
        let through = self.counted(stamp).through_last().wrapping_add(units);
        if self.slots.is_empty() {
            self.slots = ThinVec::with_capacity(1 + STAGING);
            self.slots.resize(1 + STAGING, 0);
        } else if (self.layout().staged + 1) * self.layout().width() > STAGING {
            self.flush();
        }
        let layout = self.layout();
        let slot = layout.slot(layout.buckets());
        self.slots[0] = Layout { staged: layout.staged + 1, ..layout }.header();
        self.write(slot, stamp, through);
    }

    /// Moves the staged buckets to the ring.
    fn flush(&mut self) {
        let Layout { len, staged, capacity, .. } = self.layout();
        if len + staged > capacity {
            let growth = if capacity < DOUBLES_TO { capacity } else { capacity / 2 };
            return self.rebuild((capacity + growth).max(len + 2 * staged));
        }
        let from = self.layout();
        let to = Layout { len: len + staged, staged: 0, ..from };
        let buckets = self.counted(0);
        let mut moved = [(0, 0); STAGING];
        for (place, index) in (len..len + staged).enumerate() {
            // A staged count has no offset, and the one at its place in the ring may have one.
            moved[place] = (buckets.stored_stamp(index), buckets.through(index));
        }
        self.slots[0] = to.header();
        for ((stamp, through), index) in moved.into_iter().zip(len..len + staged) {
            let through = through.wrapping_add(self.counted(0).offset(index));
            self.write(to.slot(index), stamp, through);
        }
    }

    fn write(&mut self, slot: usize, stamp: u64, through: u64) {
        if self.is_wide() {
            self.slots[slot] = stamp;
            self.slots[slot + 1] = through;
        } else {
            self.slots[slot] = narrow(stamp, through);
        }
    }

    /// Forgets the `count` oldest buckets.
    pub(super) fn drop_front(&mut self, count: usize) {
        let layout = self.layout();
        let Layout { head, len, staged, capacity, .. } = layout;
        let left = layout.buckets().saturating_sub(count);
        if left == 0 {
            self.slots = ThinVec::new();
            return;
        }
        if count < len {
            self.slots[0] = Layout { head: (head + count) % capacity, len: len - count, ..layout }.header();
        } else {
            // The staged buckets that are left move to the front.
            let (width, gone) = (layout.width(), count - len);
            self.slots.copy_within(1 + gone * width..1 + staged * width, 1);
            self.slots[0] = Layout { head: 0, len: 0, staged: left, ..layout }.header();
        }
        if capacity > SHRINK_ABOVE && left < capacity / 4 {
            self.rebuild(left * 2);
        }
    }

    /// Removes `units` from bucket `index`. Returns the number of words that changed.
    pub(super) fn subtract(&mut self, index: usize, units: u64) -> usize {
        let layout = self.layout();
        let (mut index, mut words) = (index, 0);
        while index < layout.buckets() {
            words += 1;
            match layout.offset_slot(index) {
                // All 256 buckets from `index` on are in this block: a full block never spans the end of the
                // ring.
                Some(slot) if layout.at(index).is_multiple_of(BLOCK) && index + BLOCK <= layout.len => {
                    self.slots[slot] = self.slots[slot].wrapping_add(units);
                    self.slots[0] |= HAS_OFFSETS;
                    index += BLOCK;
                }
                _ => {
                    let slot = layout.slot(index);
                    if layout.is_wide {
                        self.slots[slot + 1] = self.slots[slot + 1].wrapping_sub(units);
                    } else {
                        let word = self.slots[slot];
                        self.slots[slot] = narrow(word >> 32, word.wrapping_sub(units));
                    }
                    index += 1;
                }
            }
        }
        words
    }

    /// Gives every bucket two words. `newest` is as for [`Ring::read`].
    pub(super) fn widen(&mut self, newest: u64) {
        let layout = self.layout();
        let len = layout.buckets();
        if layout.is_wide || len == 0 {
            return;
        }
        let buckets = self.counted(newest);
        let through_last = buckets.units_after(0);
        let counted = (0..len).map(|index| {
            let after = buckets.units_after(index);
            (buckets.stamp(index), through_last - after)
        });
        let capacity = layout.capacity.max(len);
        self.slots =
            Layout { head: 0, len, staged: 0, capacity, is_wide: true, has_offsets: false }.filled(counted);
    }

    /// Moves all buckets, oldest first, to an allocation for `capacity` of them. None is staged then.
    fn rebuild(&mut self, capacity: usize) {
        let old = self.layout();
        let (len, buckets) = (old.buckets(), self.counted(0));
        let counted = (0..len).map(|index| (buckets.stored_stamp(index), buckets.through(index)));
        self.slots = Layout { head: 0, len, staged: 0, capacity, has_offsets: false, ..old }.filled(counted);
    }

    #[inline]
    fn layout(&self) -> Layout {
        let header = self.slots.first().copied().unwrap_or(0);
        let is_wide = header & WIDE != 0;
        let slots = self.slots.len().saturating_sub(1 + STAGING);
        Layout {
            head: (header & HALF) as usize,
            len: ((header & !(WIDE | HAS_OFFSETS | STAGED)) >> LEN_SHIFT) as usize,
            staged: ((header & STAGED) >> STAGED_SHIFT) as usize,
            capacity: if is_wide { capacity_of::<2>(slots) } else { capacity_of::<1>(slots) },
            is_wide,
            has_offsets: header & HAS_OFFSETS != 0,
        }
    }
}

/// Encodes a bucket in one word.
#[inline]
fn narrow(stamp: u64, through: u64) -> u64 {
    (stamp << 32) | (through & HALF)
}

/// Returns the number of buckets of `WIDTH` words that fit into `slots`, with one more word after each full
/// block.
#[inline]
fn capacity_of<const WIDTH: usize>(slots: usize) -> usize {
    let period = BLOCK * WIDTH + 1;
    slots / period * BLOCK + slots % period / WIDTH
}

/// The positions of the buckets in the slots.
#[derive(Debug, Clone, Copy)]
struct Layout {
    head: usize,
    /// The number of buckets in the ring itself, which are the oldest.
    len: usize,
    staged: usize,
    capacity: usize,
    is_wide: bool,
    has_offsets: bool,
}

impl Layout {
    /// Returns the number of buckets.
    #[inline]
    fn buckets(&self) -> usize {
        self.len + self.staged
    }

    /// Returns the position of bucket `index` in the ring.
    #[inline]
    fn at(&self, index: usize) -> usize {
        let at = self.head + index;
        if at >= self.capacity { at - self.capacity } else { at }
    }

    #[inline]
    fn slot(&self, index: usize) -> usize {
        if index >= self.len {
            return 1 + (index - self.len) * self.width();
        }
        let at = self.at(index);
        1 + STAGING + at / BLOCK + at * self.width()
    }

    /// Returns the slot of the offset that applies to bucket `index`. The last block has none if it is not
    /// full, and neither has a staged bucket.
    #[inline]
    fn offset_slot(&self, index: usize) -> Option<usize> {
        let block = self.at(index) / BLOCK;
        let has_one = index < self.len && block < self.capacity / BLOCK;
        has_one.then_some(STAGING + (block + 1) * (BLOCK * self.width() + 1))
    }

    #[inline]
    fn width(&self) -> usize {
        if self.is_wide { 2 } else { 1 }
    }

    fn header(&self) -> u64 {
        let wide = if self.is_wide { WIDE } else { 0 };
        let has_offsets = if self.has_offsets { HAS_OFFSETS } else { 0 };
        let staged = (self.staged as u64) << STAGED_SHIFT;
        wide | has_offsets | staged | ((self.len as u64) << LEN_SHIFT) | self.head as u64
    }

    /// Returns slots in this layout that start with the given pairs of time and cumulative count.
    fn filled(&self, counted: impl Iterator<Item = (u64, u64)>) -> ThinVec<u64> {
        let period = BLOCK * self.width() + 1;
        let size = 1 + STAGING + self.capacity * self.width() + self.capacity / BLOCK;
        let mut slots = ThinVec::with_capacity(size);
        slots.push(self.header());
        slots.resize(1 + STAGING, 0);
        for (stamp, through) in counted {
            if self.is_wide {
                slots.push(stamp);
                slots.push(through);
            } else {
                slots.push(narrow(stamp, through));
            }
            if (slots.len() - STAGING).is_multiple_of(period) {
                slots.push(0);
            }
        }
        slots.resize(size, 0);
        slots
    }
}

/// A reader of a ring's buckets, which are numbered from the oldest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Buckets<'a> {
    slots: &'a [u64],
    layout: Layout,
    newest: u64,
    closed: u64,
}

impl Buckets<'_> {
    pub(super) fn len(&self) -> usize {
        self.layout.buckets()
    }

    /// Returns the time of bucket `index` as it is stored: the low half, if the ring is narrow.
    #[inline]
    fn stored_stamp(&self, index: usize) -> u64 {
        let word = self.slots[self.layout.slot(index)];
        if self.layout.is_wide { word } else { word >> 32 }
    }

    /// Returns the time of the newest call in bucket `index`.
    #[inline]
    pub(super) fn stamp(&self, index: usize) -> u64 {
        let stored = self.stored_stamp(index);
        if self.layout.is_wide {
            return stored;
        }
        let age = (self.newest as u32).wrapping_sub(stored as u32);
        self.newest.saturating_sub(u64::from(age))
    }

    /// Returns the units in the buckets after `index`.
    #[inline]
    pub(super) fn units_after(&self, index: usize) -> u64 {
        self.counted_after(index).min(self.closed)
    }

    /// Returns the units that were counted after the oldest bucket, including refunded ones.
    pub(super) fn counted_after_first(&self) -> u64 {
        if self.len() == 0 { 0 } else { self.counted_after(0) }
    }

    #[inline]
    fn counted_after(&self, index: usize) -> u64 {
        let after = self.through_last().wrapping_sub(self.through(index));
        if self.layout.is_wide { after } else { after & HALF }
    }

    /// Returns the length of the prefix of buckets, oldest first, for which `leaves` holds. It is usually
    /// short, so the search doubles its steps.
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
        let stored = self.slots[slot + usize::from(self.layout.is_wide)];
        if self.layout.has_offsets { stored.wrapping_sub(self.offset(index)) } else { stored }
    }

    /// Returns the offset of bucket `index`'s block, which is subtracted from its count.
    #[inline]
    fn offset(&self, index: usize) -> u64 {
        match self.layout.offset_slot(index) {
            Some(slot) if self.layout.has_offsets => self.slots[slot],
            _ => 0,
        }
    }

    #[inline]
    fn through_last(&self) -> u64 {
        if self.len() == 0 { 0 } else { self.through(self.len() - 1) }
    }
}
