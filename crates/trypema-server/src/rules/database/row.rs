//! Rows of the tables, and their conversion from and to rules.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use trypema::rules::{
    Action, Condition, IfMissing, KeyVerdict, OnStoreFailure, Override, Period, Rule, Scope,
};

use super::numbers::NumbersRow;

/// A row of `rate_limit_rules`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RuleRow {
    id: String,
    name: Option<String>,
    key_pattern: Option<String>,
    scope: Scope,
    #[serde(flatten)]
    numbers: NumbersRow,
    unit: Option<String>,
    // The history has rows from before the columns with a default existed.
    #[serde(default)]
    postpaid: bool,
    plan_tiers: Vec<String>,
    endpoints: Vec<String>,
    #[serde(default)]
    conditions: BTreeMap<String, Condition>,
    action: Action,
    max_delay_seconds: Option<Seconds>,
    #[serde(default)]
    if_missing: IfMissing,
    on_store_failure: Option<OnStoreFailure>,
    priority: i32,
    enabled: bool,
    candidate_for: Option<String>,
    share: Option<f64>,
    /// A number out of range. An older server reads it, and so refuses a row with conditions, a unit or
    /// `postpaid`, which it would ignore.
    #[serde(default, skip_serializing)]
    #[expect(dead_code, reason = "this server skips the column")]
    refused_by_older_servers: IgnoredAny,
}

/// A row of `rate_limit_overrides`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct OverrideRow {
    rule_id: String,
    key: BTreeMap<String, String>,
    verdict: Option<KeyVerdict>,
    #[serde(flatten)]
    numbers: NumbersRow,
}

/// A row of `rate_limit_units`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct UnitRow {
    pub(super) name: String,
}

/// A row of `rate_limit_lists`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ListRow {
    pub(super) list: ListName,
    pub(super) attribute: String,
    pub(super) value: String,
}

/// The name of a list.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ListName {
    /// Requests with one of its values pass every rule.
    Allow,
    /// Requests with one of its values are denied.
    Block,
}

/// A duration in seconds, exact to the microsecond.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Seconds(f64);

impl From<Period> for Seconds {
    fn from(period: Period) -> Self {
        Self(period.0.as_nanos().div_ceil(1_000) as f64 / 1e6)
    }
}

impl Seconds {
    pub(super) fn period(self) -> Result<Period, String> {
        let micros = (self.0 * 1e6).round();
        // Up to 2^53, an `f64` holds microseconds exactly.
        if (0.0..=9_007_199_254_740_992.0).contains(&micros) {
            return Ok(Period(Duration::from_micros(micros as u64)));
        }
        Err(format!("{} seconds is not a valid duration", self.0))
    }
}

impl From<&Rule> for RuleRow {
    fn from(rule: &Rule) -> Self {
        let rule = rule.clone();
        Self {
            id: rule.id,
            name: rule.name,
            key_pattern: rule.key_pattern,
            scope: rule.scope,
            numbers: NumbersRow::from(&rule.strategy),
            unit: rule.unit,
            postpaid: rule.postpaid,
            plan_tiers: rule.plan_tiers,
            endpoints: rule.endpoints,
            conditions: rule.when,
            action: rule.action,
            max_delay_seconds: rule.max_delay.map(Seconds::from),
            if_missing: rule.if_missing,
            on_store_failure: rule.on_store_failure,
            priority: rule.priority,
            enabled: rule.enabled,
            candidate_for: rule.candidate_for,
            share: rule.share,
            refused_by_older_servers: IgnoredAny,
        }
    }
}

impl RuleRow {
    pub(super) fn into_rule(self) -> Result<Rule, String> {
        Ok(Rule {
            strategy: self.numbers.numbers()?.ok_or("algorithm is missing")?,
            id: self.id,
            name: self.name,
            scope: self.scope,
            key_pattern: self.key_pattern,
            unit: self.unit,
            postpaid: self.postpaid,
            plan_tiers: self.plan_tiers,
            endpoints: self.endpoints,
            when: self.conditions,
            action: self.action,
            max_delay: self.max_delay_seconds.map(Seconds::period).transpose()?,
            if_missing: self.if_missing,
            on_store_failure: self.on_store_failure,
            priority: self.priority,
            enabled: self.enabled,
            candidate_for: self.candidate_for,
            share: self.share,
        })
    }
}

impl From<&Override> for OverrideRow {
    fn from(item: &Override) -> Self {
        Self {
            rule_id: item.rule.clone(),
            key: item.key.clone(),
            verdict: item.verdict,
            numbers: item.strategy.as_ref().map(NumbersRow::from).unwrap_or_default(),
        }
    }
}

impl OverrideRow {
    pub(super) fn into_override(self) -> Result<Override, String> {
        Ok(Override {
            strategy: self.numbers.numbers()?,
            rule: self.rule_id,
            key: self.key,
            verdict: self.verdict,
        })
    }
}
