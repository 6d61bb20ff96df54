//! Overrides that no request can match.

use super::definition::Rule;
use super::set::{CompiledRule, ENDPOINT, RuleSet};

/// An override that no request can match. Its rule is limited to certain endpoints and counts by endpoint,
/// but the override names a different one.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct UnmatchedOverride<'s> {
    /// The rule.
    pub rule: &'s Rule,
    /// The endpoint in the override.
    pub endpoint: String,
}

impl RuleSet {
    /// Returns the overrides that no request can match, by rule and endpoint. If a rule lists endpoints,
    /// `{endpoint}` is always one of them, so an override for another endpoint has no effect.
    pub fn unmatched_overrides(&self) -> impl Iterator<Item = UnmatchedOverride<'_>> {
        let by_endpoint =
            |compiled: &&CompiledRule| !compiled.rule.endpoints.is_empty() && compiled.counts_by_endpoint();
        self.rules.iter().filter(by_endpoint).flat_map(|compiled| {
            let endpoints = compiled
                .overrides_by_key
                .keys()
                .filter_map(|key| self.values_of(key)?.values.remove(ENDPOINT));
            let mut unmatched: Vec<String> =
                endpoints.filter(|endpoint| !compiled.rule.endpoints.contains(endpoint)).collect();
            unmatched.sort_unstable();
            unmatched.into_iter().map(|endpoint| UnmatchedOverride { rule: &compiled.rule, endpoint })
        })
    }
}
