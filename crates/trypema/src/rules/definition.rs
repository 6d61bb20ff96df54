//! Rules as they are written in a file or a database, before they are validated.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::Condition;
use super::numbers::Numbers;
use super::period::Period;
use super::request::REQUESTS;
pub use crate::provider::OnStoreFailure;

/// The contents of a rules file. Compile it into a [`RuleSet`](super::RuleSet) to use it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// The units that rules count besides `requests`, such as `tokens` and `usd_micros`. At most 15.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<String>,
    /// The rules, in any order. Their priorities determine the order of evaluation.
    pub rules: Vec<Rule>,
    /// Separate limits, exemptions and blocks for single keys of a rule.
    pub overrides: Vec<Override>,
    /// Values of attributes that exempt a request: no rule applies to it, and it spends nothing.
    pub allow: BTreeMap<String, Vec<String>>,
    /// Values of attributes that block a request. Blocking takes precedence over `allow`.
    pub block: BTreeMap<String, Vec<String>>,
}

/// A limit, and the requests that it applies to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The rule's permanent name. Its counters are named after it, so a rule that keeps its id keeps its
    /// counts. Letters, digits, `_`, `-` and `.`; at most 64 characters.
    pub id: String,
    /// A name for people. Defaults to the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The subject of the limit: all requests together, or each tenant, user, address or endpoint.
    pub scope: Scope,
    /// The key that requests are counted under: text with placeholders, such as `tenant:{api_key}`. Each
    /// placeholder is an attribute of the request; `if_missing` applies if the request lacks one. Defaults to
    /// the scope's placeholder: `{tenant}`, `{user}`, `{ip}` or `{endpoint}`. With the scope `global`, all
    /// requests share one counter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_pattern: Option<String>,
    /// The strategy and its numbers.
    pub strategy: Numbers,
    /// The unit that the rule counts: `requests`, which is the default, or one of `units`. If a request has
    /// no cost in this unit, `if_missing` applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Whether costs become known only afterwards. The rule denies requests while nothing is left, but asks
    /// for only one unit. It counts the whole cost, even if this exceeds the limit. Later requests wait until
    /// the excess is paid off. Not for the strategy `abuse`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub postpaid: bool,
    /// The plans that the rule applies to. Empty: all plans.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plan_tiers: Vec<String>,
    /// The endpoints that the rule applies to. Empty: all endpoints. `/api/search` matches that path, `*` in
    /// `/users/*/posts` matches any one segment, `/api/**` matches `/api` and everything below, and `POST
    /// /login` matches one method.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<String>,
    /// Conditions on attributes. The rule applies only if all of them hold. `model: [gpt-5, claude-*]` needs
    /// one of these values, in which `*` stands for any text. `region: {not: [eu]}` needs another value, or
    /// none. `api_key: absent` needs the attribute to be absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub when: BTreeMap<String, Condition>,
    /// The consequence of exceeding the limit.
    #[serde(default)]
    pub action: Action,
    /// The longest wait that action `throttle` may ask of a client. If the wait would be longer, the request
    /// is rejected. Defaults to one second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_delay: Option<Period>,
    /// The treatment of a request that matches the rule's endpoints, plans and conditions, but lacks an
    /// attribute of its key or a cost in its unit.
    #[serde(default, skip_serializing_if = "IfMissing::is_skip")]
    pub if_missing: IfMissing,
    /// The rule's decision when the store is unreachable. Defaults to the policy that the limiter was built
    /// with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_store_failure: Option<OnStoreFailure>,
    /// The order of the rules, lowest first. If several rules deny a request, the response names the first
    /// one.
    #[serde(default = "default_priority")]
    pub priority: i32,
    /// Whether the rule is in force.
    #[serde(default = "default_enabled")]
    pub enabled: bool,
    /// The id of the live rule that this candidate may replace. The candidate is evaluated alongside the live
    /// rule, on its own counters, and never denies a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate_for: Option<String>,
    /// The share of keys that the candidate is evaluated for, above 0 and up to 1. Defaults to all keys. Only
    /// for candidates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

/// The default of `max_delay`.
const DEFAULT_MAX_DELAY: Duration = Duration::from_secs(1);

impl Rule {
    /// Returns the rule's name, or its id if it has no name.
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.id)
    }

    /// Returns the longest wait that action `throttle` may ask of a client.
    pub fn longest_delay(&self) -> Duration {
        self.max_delay.map_or(DEFAULT_MAX_DELAY, |delay| delay.0)
    }

    /// Returns the unit that the rule counts.
    pub fn unit_name(&self) -> &str {
        self.unit.as_deref().unwrap_or(REQUESTS)
    }

    /// Whether this is a shadow rule: a log-only rule or a candidate. Shadow rules count requests but never
    /// deny them.
    pub fn is_shadow(&self) -> bool {
        self.action == Action::LogOnly || self.candidate_for.is_some()
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_false(truth: &bool) -> bool {
    !truth
}

fn default_priority() -> i32 {
    100
}

fn default_enabled() -> bool {
    true
}

/// The subject of a rule's limit. The scope also provides the default key pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// All requests together.
    Global,
    /// Each tenant.
    Tenant,
    /// Each user.
    User,
    /// Each client address.
    Ip,
    /// Each endpoint.
    Endpoint,
}

/// The consequence of exceeding a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The request is denied.
    #[default]
    Reject,
    /// The client is asked to wait and to try again, if the wait is at most `max_delay`. Otherwise the
    /// request is denied.
    Throttle,
    /// The denial is recorded but not enforced: the request passes this rule.
    LogOnly,
}

/// The treatment of a request that lacks an attribute of a rule's key, or a cost in its unit. Log-only rules and candidates never
/// deny a request; with `deny` and `error` they only record a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IfMissing {
    /// The rule does not apply to the request.
    #[default]
    Skip,
    /// The rule denies the request, and the response names the missing attribute or unit.
    Deny,
    /// The request fails with an error that names the rule and the missing attribute or unit.
    Error,
}

impl IfMissing {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
    fn is_skip(&self) -> bool {
        *self == Self::Skip
    }
}

/// A limit or a verdict for one key, in place of the rule's limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// The id of the rule.
    pub rule: String,
    /// The values of all placeholders of the rule.
    #[serde(default)]
    pub key: BTreeMap<String, String>,
    /// A limit of the rule's strategy for this key. Excludes `verdict`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Numbers>,
    /// A verdict for this key, in place of a limit. Excludes `strategy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<KeyVerdict>,
}

/// A fixed verdict for one key of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyVerdict {
    /// The rule does not apply to the key.
    Allow,
    /// The rule denies every request of the key.
    Block,
}
