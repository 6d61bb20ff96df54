//! The limits of the model: fixed windows, and units that are held.

use std::time::Duration;

use trypema::rules::Numbers;

use super::window::AlignedWindow;

/// A limit that the model knows.
#[derive(Debug, Clone, Copy)]
pub(super) enum ModelLimit {
    Window(AlignedWindow),
    Slots { limit: u64, hold: Duration },
}

impl ModelLimit {
    /// Returns the limit of a strategy. `None` if it is another one, or if its windows differ in length.
    pub(super) fn of(numbers: &Numbers) -> Option<Self> {
        match numbers {
            Numbers::Concurrency(numbers) => Some(Self::Slots { limit: numbers.limit, hold: numbers.hold.0 }),
            numbers => AlignedWindow::of(numbers).map(Self::Window),
        }
    }

    /// Returns the time after which a holder loses its units, if the limit is on units held.
    pub(super) fn hold(&self) -> Option<Duration> {
        match self {
            Self::Window(_) => None,
            Self::Slots { hold, .. } => Some(*hold),
        }
    }
}
