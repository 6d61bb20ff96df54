//! Counters as JSON.

use schemars::JsonSchema;
use serde::Serialize;
use trypema::rules::Holder;

use super::{BlockReport, counted_unit, milliseconds, rounded_down, rounded_up};
use crate::service::CounterState;

/// The state of a counter.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct KeyResponse<'a> {
    /// The name of the counter, as responses contain it.
    key: &'a str,
    /// The id of its rule.
    rule: &'a str,
    /// The name of the rule, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// The unit that the rule counts, if it is not `requests`.
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'a str>,
    /// The maximum number of units.
    limit: u64,
    /// The number of units that are left.
    remaining: u64,
    /// Whether an abuse rule or an override blocks the key.
    blocked: bool,
    /// Milliseconds, rounded up, until the key has a unit left and is not blocked; 0 if that is now, `null`
    /// if an override blocks the key.
    retry_after_ms: Option<u64>,
    /// Milliseconds, rounded up, until no spent units count any more.
    reset_after_ms: u64,
    #[serde(flatten)]
    block: BlockReport,
    /// The reservations that are neither settled nor expired, in the order in which they were made. Left out
    /// if there are none; `null` if Redis could not be asked, and `on_store_failure` decided the rest.
    #[serde(skip_serializing_if = "is_empty")]
    holders: Option<Vec<HolderReport>>,
}

/// A reservation that a counter holds.
#[derive(Debug, Serialize, JsonSchema)]
struct HolderReport {
    /// The id of the reservation, 32 hexadecimal digits: the same at each of its counters. It does not settle
    /// the reservation.
    id: String,
    /// The reserved units.
    units: u64,
    /// Milliseconds since the units were recorded.
    age_ms: u64,
    /// Milliseconds after which the reservation expires.
    expires_in_ms: u64,
}

#[allow(clippy::ref_option, reason = "serde asks for it")]
fn is_empty(holders: &Option<Vec<HolderReport>>) -> bool {
    holders.as_ref().is_some_and(Vec::is_empty)
}

impl From<&Holder> for HolderReport {
    fn from(holder: &Holder) -> Self {
        Self {
            units: holder.units,
            age_ms: rounded_down(holder.age),
            expires_in_ms: rounded_up(holder.expires_in),
            id: holder.id.clone(),
        }
    }
}

/// A reservation that was released at one counter.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ReleaseHolderResponse<'a> {
    /// The name of the counter.
    pub(crate) key: &'a str,
    /// The id of the reservation.
    pub(crate) id: &'a str,
    /// Whether the counter held the reservation, which it now does not.
    pub(crate) released: bool,
}

/// A counter that was reset.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ResetResponse<'a> {
    /// The name of the counter.
    pub(crate) key: &'a str,
    /// Whether the counter held any state.
    pub(crate) existed: bool,
}

impl<'a> KeyResponse<'a> {
    /// Creates the response; `None` if the verdict has no rule.
    pub(crate) fn new(counter: &'a CounterState) -> Option<Self> {
        let rule = counter.verdict.rules().next()?;
        let decision = rule.decision;
        let holders = counter.holders.as_ref();
        Some(Self {
            key: rule.key,
            rule: &rule.rule.id,
            name: rule.rule.name.as_deref(),
            unit: counted_unit(rule.rule),
            limit: decision.limit(),
            remaining: decision.remaining(),
            blocked: !decision.is_allowed(),
            retry_after_ms: milliseconds(counter.retry_after),
            reset_after_ms: rounded_up(decision.reset_after()),
            block: BlockReport::from(decision),
            holders: holders.map(|holders| holders.iter().map(HolderReport::from).collect()),
        })
    }
}
