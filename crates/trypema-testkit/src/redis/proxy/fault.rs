//! The faults of a proxy.

use std::time::Duration;

/// The effect on bytes that pass.
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
