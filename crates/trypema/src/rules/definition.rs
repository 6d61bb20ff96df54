//! Rules as they are written down, in a file or a database, before they are checked.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::period::Period;
pub use crate::provider::OnStoreFailure;

/// Everything a file of rules may say. Compile it into a [`RuleSet`](super::RuleSet) to use it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// The rules, in any order: their priorities order them.
    pub rules: Vec<Rule>,
    /// Special limits, passes and blocks for single keys of a rule.
    pub overrides: Vec<Override>,
    /// Requests with one of these values of an attribute pass every rule and spend nothing.
    pub allow: BTreeMap<String, Vec<String>>,
    /// Requests with one of these values of an attribute are denied, even if they are also allowed.
    pub block: BTreeMap<String, Vec<String>>,
}

/// One limit on some requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Names its counters for good: a rule that keeps its id keeps its history. Letters, digits, `_`, `-` and `.`.
    pub id: String,
    /// What people call it; the id if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What is limited.
    pub scope: Scope,
    /// Who shares a counter: text with placeholders such as `tenant:{api_key}`, each of which is an attribute of the
    /// request. The rule applies to requests that have them all; `if_missing` says what happens to others. Where there
    /// is no pattern the scope gives it:
    /// `{tenant}`, `{user}`, `{ip}`, `{endpoint}`, or one counter for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_pattern: Option<String>,
    /// The algorithm and its numbers.
    pub strategy: Numbers,
    /// The plans it applies to; all if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plan_tiers: Vec<String>,
    /// The endpoints it applies to; all if there are none. `/api/search` is that path, `/users/*/posts` has any segment
    /// in place of `*`, `/api/**` is everything below, and `POST /login` is for one method.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<String>,
    /// What a denial means.
    #[serde(default)]
    pub action: Action,
    /// How long a throttled caller may be asked to wait; beyond it the call is rejected. One second if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_delay: Option<Period>,
    /// The treatment of a request that the rule is targeted at, but that lacks an attribute of the rule's key.
    #[serde(default, skip_serializing_if = "IfMissing::is_skip")]
    pub if_missing: IfMissing,
    /// What it means that the store cannot be asked; what the limiter was built with if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_store_failure: Option<OnStoreFailure>,
    /// The order of rules, lower first: where several deny, the first is named.
    #[serde(default = "default_priority")]
    pub priority: i32,
    /// Whether it is in force.
    #[serde(default = "default_enabled")]
    pub enabled: bool,
    /// The id of the live rule that it might replace: it is asked beside it, on counters of its own, and never denies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate_for: Option<String>,
    /// The share of its keys that are asked, above 0 and up to 1; all if not given. For candidates only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

/// How long a throttled caller is asked to wait at most, unless its rule says otherwise.
const DEFAULT_MAX_DELAY: Duration = Duration::from_secs(1);

impl Rule {
    /// What people call it: its name, or else its id.
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.id)
    }

    /// How long a throttled caller is asked to wait at most.
    pub fn longest_delay(&self) -> Duration {
        self.max_delay.map_or(DEFAULT_MAX_DELAY, |delay| delay.0)
    }

    /// Whether it is asked on its own and never denies: it only logs, or it is a candidate.
    pub fn is_shadow(&self) -> bool {
        self.action == Action::LogOnly || self.candidate_for.is_some()
    }
}

fn default_priority() -> i32 {
    100
}

fn default_enabled() -> bool {
    true
}

/// What is limited: who a denial is about, and which attribute names them if the rule does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// All requests together.
    Global,
    /// Each customer.
    Tenant,
    /// Each user.
    User,
    /// Each client address.
    Ip,
    /// Each endpoint.
    Endpoint,
}

/// What a denial means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The request is denied.
    #[default]
    Reject,
    /// The caller is asked to wait and to ask again, if that is not too long.
    Throttle,
    /// Nothing but a record of it: the request passes this rule.
    LogOnly,
}

/// The treatment of a request that lacks an attribute of a rule's key. Rules that only log and candidates never keep a
/// request out: with `deny` and `error` they record that they would have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IfMissing {
    /// The rule does not apply to the request.
    #[default]
    Skip,
    /// The rule denies the request, and the answer names the missing attribute.
    Deny,
    /// The request ends with an error that names the rule and the missing attribute.
    Error,
}

impl IfMissing {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
    fn is_skip(&self) -> bool {
        *self == Self::Skip
    }
}

/// A strategy and its numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Numbers {
    /// Never more than `limit` in any window.
    Absolute(WindowNumbers),
    /// `limit` on average, shedding load by degrees, and never more than `hard_limit_factor` times that.
    Suppressed(SuppressedNumbers),
    /// Bursts, and a steady rate after them.
    TokenBucket(BucketNumbers),
    /// About `limit` in any window, in two counters.
    SlidingWindow(CounterNumbers),
    /// `limit` in each window aligned to the clock.
    FixedWindow(CounterNumbers),
    /// Attempts until a block.
    Abuse(AbuseNumbers),
}

/// Numbers of the absolute strategy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowNumbers {
    /// What fits into a window.
    pub limit: u64,
    /// How long it is.
    pub window: Period,
    /// How close calls must be to be counted together; 10 ms if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Period>,
}

/// Numbers of the suppressed strategy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SuppressedNumbers {
    /// What fits into a window before load is shed.
    pub limit: u64,
    /// How long it is.
    pub window: Period,
    /// How close calls must be to be counted together; 10 ms if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Period>,
    /// How far above the limit everything is rejected; 2 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard_limit_factor: Option<f64>,
}

/// Numbers of a token bucket: one limit, or a list of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BucketNumbers {
    /// Tokens that come back per window, and the bucket's size unless `burst` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The time in which they come back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Period>,
    /// The bucket's size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// Tokens that come back per second. It takes precedence over `limit` per `window`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refill_rate: Option<f64>,
    /// Several buckets, each of which must have the cost, in place of the above.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<BucketLimit>,
}

/// One of several limits of a token bucket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BucketLimit {
    /// Tokens that come back per window, and the bucket's size unless `burst` is given.
    pub limit: u64,
    /// The time in which they come back.
    pub window: Period,
    /// The bucket's size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
}

/// Numbers of the fixed window and of the sliding-window counter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CounterNumbers {
    /// What fits into a window.
    pub limit: u64,
    /// How long it is.
    pub window: Period,
}

/// Numbers of the abuse strategy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AbuseNumbers {
    /// The short window.
    pub temp: TierNumbers,
    /// The long one.
    pub long: TierNumbers,
    /// The effect of attempts during a block.
    #[serde(default)]
    pub while_blocked: WhileBlocked,
}

/// The effect of attempts during a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhileBlocked {
    /// They count but do not lengthen the block; reaching the other threshold starts that block.
    #[default]
    Count,
    /// They count, and reaching a threshold again lengthens the block.
    Lengthen,
    /// They do not count.
    Ignore,
}

/// A window of the abuse strategy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TierNumbers {
    /// How long attempts count.
    pub window: Period,
    /// The attempt that blocks.
    pub threshold: u64,
    /// How long it blocks.
    pub block: Period,
}

/// What one key of a rule gets in place of the rule's own limit: another limit, or a verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// The rule's id.
    pub rule: String,
    /// The values of all placeholders of the rule.
    #[serde(default)]
    pub key: BTreeMap<String, String>,
    /// Other numbers for the rule's strategy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Numbers>,
    /// Or a verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<KeyVerdict>,
}

/// What happens to one key of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyVerdict {
    /// The rule does not apply to it.
    Allow,
    /// The rule always denies it.
    Block,
}
