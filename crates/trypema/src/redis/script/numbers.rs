//! The names that the scripts have for parts of the protocol.

use crate::redis::verb::{AT_ESTIMATE, AT_UNDOING, DEBIT, Helper, POSTPAID, REMEMBERED, ROWS, VerbRow};

/// Returns each name, and the Lua that stands for it.
pub(super) fn names() -> impl Iterator<Item = (&'static str, String)> {
    let numbers = [
        ("POSTPAID", POSTPAID),
        ("DEBIT", DEBIT),
        ("AT_ESTIMATE", AT_ESTIMATE),
        ("AT_UNDOING", AT_UNDOING),
        ("REMEMBERED", REMEMBERED),
    ];
    let sets = [
        ("VERBS_WITH_RESETS", set_of(|row| row.helpers.contains(&Helper::Resets))),
        ("VERBS_OF_TABLE", set_of(VerbRow::is_of_table)),
        ("VERBS_WITHOUT_LIMIT", set_of(|row| !row.has_limit)),
    ];
    let verbs = ROWS.iter().map(|row| (row.name, row.number));
    verbs.chain(numbers).map(|(name, number)| (name, number.to_string())).chain(sets)
}

/// Returns a table with the numbers of some verbs as keys.
fn set_of(is_in: impl Fn(&VerbRow) -> bool) -> String {
    let rows = ROWS.iter().filter(|row| is_in(row));
    let numbers: Vec<String> = rows.map(|row| format!("[{}] = true", row.number)).collect();
    format!("{{{}}}", numbers.join(", "))
}
