//! The numbers of the protocol, by the names that the scripts have for them.

use crate::redis::protocol::{AT_ESTIMATE, DEBIT, POSTPAID, REMEMBERED, UNDONE, Verb};

pub(super) const NUMBERS: [(&str, u8); 22] = [
    ("TAKE", Verb::Take as u8),
    ("PEEK", Verb::Peek as u8),
    ("UP_TO", Verb::UpTo as u8),
    ("RESERVE", Verb::Reserve as u8),
    ("REFUND", Verb::Refund as u8),
    ("REFUND_UNITS", Verb::RefundUnits as u8),
    ("RESET", Verb::Reset as u8),
    ("ADOPT", Verb::Adopt as u8),
    ("BLOCK", Verb::Block as u8),
    ("UNBLOCK", Verb::Unblock as u8),
    ("DENIED_ELSEWHERE", Verb::DeniedElsewhere as u8),
    ("LEASE", Verb::Lease as u8),
    ("HEARTBEAT", Verb::Heartbeat as u8),
    ("HOLD", Verb::Hold as u8),
    ("SETTLE", Verb::Settle as u8),
    ("RENEW", Verb::Renew as u8),
    ("HOLDERS", Verb::Holders as u8),
    ("POSTPAID", POSTPAID),
    ("DEBIT", DEBIT),
    ("AT_ESTIMATE", AT_ESTIMATE),
    ("AT_UNDOING", UNDONE),
    ("REMEMBERED", REMEMBERED),
];
