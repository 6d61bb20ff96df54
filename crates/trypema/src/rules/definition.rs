//! Rules as they are written in a file or a database, before they are validated.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::Condition;
use super::period::Period;
use super::request::REQUESTS;
use super::starts::Starts;
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
    /// Returns a rule with a limit for each subject of `scope`, and the default of every other field.
    ///
    /// ```
    /// use trypema::rules::{Action, Rule, Scope};
    ///
    /// let strategy = serde_json::from_str(r#"{"fixed_window": {"limit": 5, "window": "1m"}}"#)?;
    /// let rule = Rule { action: Action::LogOnly, ..Rule::new("login", Scope::Ip, strategy) };
    /// assert!(rule.enabled && rule.is_shadow());
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn new(id: impl Into<String>, scope: Scope, strategy: Numbers) -> Self {
        Self {
            id: id.into(),
            name: None,
            scope,
            key_pattern: None,
            strategy,
            unit: None,
            postpaid: false,
            plan_tiers: Vec::new(),
            endpoints: Vec::new(),
            when: BTreeMap::new(),
            action: Action::default(),
            max_delay: None,
            if_missing: IfMissing::default(),
            on_store_failure: None,
            priority: default_priority(),
            enabled: default_enabled(),
            candidate_for: None,
            share: None,
        }
    }

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

/// A strategy and its numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Numbers {
    /// A strict sliding window: at most `limit` in any window.
    Absolute(WindowNumbers),
    /// A sliding window that sheds load gradually: about `limit` per window, and at most `hard_limit_factor`
    /// times that.
    Suppressed(SuppressedNumbers),
    /// A token bucket: a burst, then a steady rate.
    TokenBucket(BucketNumbers),
    /// A sliding-window counter: about `limit` in any window, estimated from two counters.
    SlidingWindow(CounterNumbers),
    /// A fixed window: at most `limit` in each window, which is aligned to the clock or to a calendar.
    FixedWindow(FixedWindowNumbers),
    /// Counts attempts, and blocks the key after too many of them.
    Abuse(AbuseNumbers),
    /// A number of units that requests may hold at the same time: at most `limit` requests in flight.
    Concurrency(ConcurrencyNumbers),
}

/// The numbers of the absolute strategy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowNumbers {
    /// The most units in a window.
    pub limit: u64,
    /// The length of the window.
    pub window: Period,
    /// The resolution: requests within this time of an earlier one may be counted together with it. Defaults
    /// to 10 ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Period>,
}

/// The numbers of the suppressed strategy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SuppressedNumbers {
    /// The number of units in a window above which the strategy sheds load.
    pub limit: u64,
    /// The length of the window.
    pub window: Period,
    /// The resolution: requests within this time of an earlier one may be counted together with it. Defaults
    /// to 10 ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Period>,
    /// The hard limit as a multiple of `limit`: above it every request is denied. Defaults to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard_limit_factor: Option<f64>,
}

/// The numbers of a token bucket: one limit, or a list of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BucketNumbers {
    /// The tokens refilled per window, and the capacity unless `burst` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The time in which `limit` tokens are refilled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Period>,
    /// The capacity of the bucket. Defaults to `limit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// The tokens refilled per second. Takes precedence over `limit` per `window`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refill_rate: Option<f64>,
    /// Several buckets instead of one. A request takes its cost from each of them or is denied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<BucketLimit>,
}

/// One of several limits of a token bucket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BucketLimit {
    /// The tokens refilled per window, and the capacity unless `burst` is given.
    pub limit: u64,
    /// The time in which `limit` tokens are refilled.
    pub window: Period,
    /// The capacity of the bucket. Defaults to `limit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
}

/// The numbers of the sliding-window counter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CounterNumbers {
    /// The most units in a window.
    pub limit: u64,
    /// The length of the window.
    pub window: Period,
}

/// The numbers of the fixed window: `window`, or the days, weeks or months of a calendar.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [{"required": ["window"]}, {"required": ["per"]}]))]
#[schemars(extend("dependentRequired" = {"zone": ["per"], "starts": ["per"]}))]
pub struct FixedWindowNumbers {
    /// The most units in a window.
    pub limit: u64,
    /// The length of the window, which starts at every multiple of it since 1970 in UTC. Excludes `per`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Period>,
    /// A window for each day, week or month of a calendar. Excludes `window`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per: Option<CalendarPeriod>,
    /// The time zone of the calendar: an IANA name such as `Europe/Berlin`. Defaults to `UTC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The local time at which windows start: with `per: day` a time such as `06:00` (default `00:00`), with
    /// `per: week` a weekday (default `monday`), with `per: month` a day from 1 to 28 (default 1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts: Option<Starts>,
}

impl From<CounterNumbers> for FixedWindowNumbers {
    fn from(CounterNumbers { limit, window }: CounterNumbers) -> Self {
        Self { limit, window: Some(window), per: None, zone: None, starts: None }
    }
}

/// The length of a calendar's windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CalendarPeriod {
    /// Each day.
    Day,
    /// Each week.
    Week,
    /// Each month.
    Month,
}

/// The numbers of the abuse strategy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AbuseNumbers {
    /// The short window, with its block.
    pub temp: TierNumbers,
    /// The long window, with its block.
    pub long: TierNumbers,
    /// The effect of attempts during a block.
    #[serde(default)]
    pub while_blocked: WhileBlocked,
}

/// The effect of attempts during a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhileBlocked {
    /// They count but do not extend the block. Reaching the threshold of the other window starts that
    /// window's block.
    #[default]
    Count,
    /// They count, and reaching a threshold again extends the block.
    Lengthen,
    /// They do not count.
    Ignore,
}

/// A window of the abuse strategy, with its block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TierNumbers {
    /// The length of the window.
    pub window: Period,
    /// The number of attempts in the window that starts a block. The attempt that reaches it is denied.
    pub threshold: u64,
    /// The length of the block.
    pub block: Period,
}

/// The numbers of the concurrency strategy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConcurrencyNumbers {
    /// The most units that may be held at the same time.
    pub limit: u64,
    /// The time after which a holder loses its units unless it renews them: at most an hour. Holders that died
    /// keep their units this long.
    pub hold: Period,
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
