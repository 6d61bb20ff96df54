//! The faults a proxy knows.

use std::time::Duration;

/// What happens to what passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Fault {
    #[default]
    None,
    Delay(Duration),
    Refuse,
    DropReplies,
    CutOnReply,
    Freeze,
}
