//! The windows of a limit: aligned to the epoch, or those of a calendar.

#[cfg(feature = "calendar")]
use super::calendar::CalendarWindow;
use crate::strategy::aligned::AlignedWindow;

/// One window: from `starts_at` to just before `ends_at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) starts_at: u64,
    pub(super) ends_at: u64,
}

/// Consecutive windows without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Windows {
    Aligned(AlignedWindow),
    #[cfg(feature = "calendar")]
    Calendar(CalendarWindow),
}

impl Windows {
    /// Returns the window that contains `now`.
    #[inline(always)]
    pub(super) fn at(&self, now: u64) -> Bounds {
        match self {
            Self::Aligned(window) => {
                let starts_at = window.start_of(now);
                Bounds { starts_at, ends_at: starts_at + window.window_us }
            }
            #[cfg(feature = "calendar")]
            Self::Calendar(window) => window.bounds_at(now),
        }
    }

    /// Returns the end of the window to which a count belongs whose window ends at `known`, after the window
    /// that contains `now`. Returns `None` if the count belongs into the window that contains `now`.
    #[inline]
    pub(super) fn later_end(&self, now: u64, known: u64) -> Option<u64> {
        match self {
            // The state's window is the next one (the clock went back), or one of another length (the limit
            // changed), unless it starts more than a window in the future.
            Self::Aligned(window) => (known <= now + 2 * window.window_us).then(|| window.end_from(known)),
            // The state's window is the next one, unless it is one of other windows (the limit changed), or
            // starts more than a window in the future.
            #[cfg(feature = "calendar")]
            Self::Calendar(window) => (known == window.next_bounds(now).ends_at).then_some(known),
        }
    }

    /// Returns the start of the window that ends at `ends_at`. If no window of a calendar does, returns 0.
    pub(super) fn start_before(&self, ends_at: u64) -> u64 {
        match self {
            Self::Aligned(window) => ends_at.saturating_sub(window.window_us),
            #[cfg(feature = "calendar")]
            Self::Calendar(window) => {
                let bounds = window.bounds_at(ends_at.saturating_sub(1));
                if bounds.ends_at == ends_at { bounds.starts_at } else { 0 }
            }
        }
    }

    /// Returns the usual length of a window: of a month, 31 days.
    pub(super) fn usual_us(&self) -> u64 {
        match self {
            Self::Aligned(window) => window.window_us,
            #[cfg(feature = "calendar")]
            Self::Calendar(window) => window.usual_us(),
        }
    }

    /// Returns a length that no window exceeds.
    pub(super) fn longest_us(&self) -> u64 {
        match self {
            Self::Aligned(window) => window.window_us,
            #[cfg(feature = "calendar")]
            Self::Calendar(window) => window.longest_us(),
        }
    }

    /// Returns a length that every window has at least.
    #[cfg(feature = "_redis")]
    pub(super) fn shortest_us(&self) -> u64 {
        match self {
            Self::Aligned(window) => window.window_us,
            #[cfg(feature = "calendar")]
            Self::Calendar(window) => window.shortest_us(),
        }
    }
}
