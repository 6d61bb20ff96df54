//! `RateLimit` and `RateLimit-Policy`, read by a third-party parser of structured fields.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;
use sfv::{BareItem, Item, List, ListEntry, Parser};
use trypema::clock::ManualClock;
use trypema::http::{HeaderStyle, Policy, retry_after_seconds};
use trypema::{Decision, RateLimiter, TokenBucketLimits, TokenLimit};

use super::{MAX_LIMIT, WINDOW, allowed, decided, denied, names, never, rounded_up, waits};

/// The largest integer of a structured field.
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// The parts of a policy.
#[derive(Debug, Clone)]
struct Given {
    name: String,
    quota: u64,
    window: Option<Duration>,
    decision: Decision,
}

impl Given {
    fn policy(&self) -> Policy<'_> {
        Policy { name: &self.name, quota: self.quota, window: self.window, decision: &self.decision }
    }
}

fn durations() -> impl Strategy<Value = Duration> {
    let any_duration =
        (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(secs, nanos)| Duration::new(secs, nanos));
    prop_oneof![waits(), any_duration, Just(Duration::ZERO), Just(Duration::MAX)]
}

fn decisions() -> impl Strategy<Value = Decision> {
    let limits = prop_oneof![1..100_u64, 1..=MAX_LIMIT];
    let any_decision = (limits, any::<u64>(), any::<u64>(), waits())
        .prop_map(|(limit, spent, cost, wait)| decided(limit, (spent % (limit + 1), cost), wait));
    prop_oneof![any_decision, waits().prop_map(denied), Just(never())]
}

fn policies() -> impl Strategy<Value = Vec<Given>> {
    let quotas = prop_oneof![0..1_000_u64, any::<u64>()];
    let given = (names(), quotas, prop::option::of(durations()), decisions())
        .prop_map(|(name, quota, window, decision)| Given { name, quota, window, decision });
    prop::collection::vec(given, 1..40)
}

fn written(style: HeaderStyle, policies: &[Given]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    style.write(policies.iter().map(Given::policy), &mut headers);
    headers
}

/// Parses the items of a field that must have exactly one line.
fn items(headers: &HeaderMap, name: &str) -> Vec<Item> {
    let lines: Vec<&HeaderValue> = headers.get_all(name).iter().collect();
    assert_eq!(lines.len(), 1, "{headers:?}");
    let list: List =
        Parser::new(lines[0].as_bytes()).parse().unwrap_or_else(|error| panic!("{error}: {lines:?}"));
    let item = |entry| match entry {
        ListEntry::Item(item) => item,
        ListEntry::InnerList(list) => panic!("{list:?}"),
    };
    list.into_iter().map(item).collect()
}

fn name_of(item: &Item) -> &str {
    item.bare_item.as_string().unwrap_or_else(|| panic!("{item:?}")).as_str()
}

/// The parameters of an item, all of which must be integers.
fn numbers(item: &Item) -> Vec<(&str, u64)> {
    let number = |value: &BareItem| u64::try_from(i64::from(value.as_integer().unwrap())).unwrap();
    item.params.iter().map(|(key, value)| (key.as_str(), number(value))).collect()
}

/// The wait of a denied request that can succeed later; otherwise the time until the limit is full again.
fn reset_after(decision: &Decision) -> Duration {
    if decision.is_allowed() || decision.is_never() {
        return decision.reset_after();
    }
    decision.retry_after().unwrap()
}

/// The policies that the header lists: the first 12, then up to 12 of the remaining ones that denied.
fn listed(policies: &[Given]) -> Vec<&Given> {
    let (first, rest) = policies.split_at(policies.len().min(12));
    let denied = rest.iter().filter(|given| !given.decision.is_allowed());
    first.iter().chain(denied.take(12)).collect()
}

proptest! {
    #[test]
    fn what_is_parsed_is_what_was_meant(policies in policies()) {
        let headers = written(HeaderStyle::Standard, &policies);
        prop_assert_eq!(headers.len(), 2, "{:?}", headers);
        let (limits, left) = (items(&headers, "ratelimit-policy"), items(&headers, "ratelimit"));
        let policies = listed(&policies);
        prop_assert_eq!([limits.len(), left.len()], [policies.len(); 2]);
        for ((given, limit), left) in policies.iter().zip(&limits).zip(&left) {
            prop_assert_eq!(name_of(limit), name_of(left));
            let window = given.window.map(|window| ("w", rounded_up(window).clamp(1, MAX_INTEGER)));
            let expected: Vec<_> = [("q", given.quota.min(MAX_INTEGER))].into_iter().chain(window).collect();
            prop_assert_eq!(numbers(limit), expected);
            let remaining = given.decision.remaining().min(MAX_INTEGER);
            let reset = rounded_up(reset_after(&given.decision));
            prop_assert_eq!(numbers(left), [("r", remaining), ("t", reset)]);
        }
    }

    #[test]
    fn names_are_shown_whole_where_they_can_be(name in names()) {
        let given = Given { name: name.clone(), quota: 1, window: None, decision: never() };
        let headers = written(HeaderStyle::Standard, &[given]);
        let items = items(&headers, "ratelimit");
        let shown = name_of(&items[0]);
        prop_assert!(shown.len() <= 64 && (shown.is_empty() == name.is_empty()));
        if name.len() <= 64 && name.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            prop_assert_eq!(shown, name);
        }
    }

    #[test]
    fn names_that_differ_still_differ(
        start in "[ -~]{0,70}",
        one in "[ -~]{0,70}",
        other in "[ -~]{0,70}",
    ) {
        prop_assume!(one != other);
        let given = |end: &str| Given {
            name: format!("{start}{end}"),
            quota: 1,
            window: None,
            decision: never(),
        };
        let headers = written(HeaderStyle::Standard, &[given(&one), given(&other)]);
        let items = items(&headers, "ratelimit");
        prop_assert_ne!(name_of(&items[0]), name_of(&items[1]));
    }

    #[test]
    fn x_ratelimit_is_three_numbers(policies in policies()) {
        let headers = written(HeaderStyle::XRateLimit, &policies);
        prop_assert_eq!(headers.len(), 3, "{:?}", headers);
        let number = |name: &str| headers[name].to_str().unwrap().parse::<u64>().unwrap();
        let shown = [number("x-ratelimit-limit"), number("x-ratelimit-remaining"), number("x-ratelimit-reset")];
        let is_shown = |given: &Given| {
            let decision = &given.decision;
            shown == [given.quota, decision.remaining(), rounded_up(reset_after(decision))]
        };
        prop_assert!(policies.iter().any(is_shown), "{shown:?} is of none");
    }
}

#[test]
fn a_list_reads_as_the_draft_shows_it() {
    let burst = allowed(100, 50, Duration::from_secs(30));
    let daily = denied(Duration::from_micros(1));
    let policies = [
        Policy { name: "burst", quota: 100, window: Some(Duration::from_secs(60)), decision: &burst },
        Policy { name: "say \"\\\"", quota: 1, window: None, decision: &daily },
    ];
    let mut headers = HeaderMap::new();
    HeaderStyle::default().write(policies, &mut headers);
    assert_eq!(headers["ratelimit-policy"], r#""burst";q=100;w=60, "say \"\\\"";q=1"#);
    assert_eq!(headers["ratelimit"], r#""burst";r=50;t=30, "say \"\\\"";r=0;t=1"#);
}

/// A bucket refills one token long before it is full. A denied client is given the time until its own request
/// fits, so that `Retry-After` is no earlier than `t`, as the draft requires.
#[test]
fn a_denial_is_told_when_its_own_call_fits() {
    let rl = RateLimiter::builder().clock(Arc::new(ManualClock::default())).build().unwrap();
    let limits = TokenBucketLimits::from(TokenLimit::new(10, Duration::from_secs(100)).unwrap());
    let take = |cost| rl.local().token_bucket().take("ann", &limits, cost).core();
    let shown = |decision| {
        let given = Given { name: "burst".to_owned(), quota: 10, window: None, decision };
        written(HeaderStyle::Standard, &[given])["ratelimit"].clone()
    };
    assert_eq!(shown(take(10)), r#""burst";r=0;t=100"#);
    let denied = take(1);
    assert_eq!(shown(denied), r#""burst";r=0;t=10"#);
    assert_eq!(retry_after_seconds(&denied), Some(10));
    assert_eq!(shown(take(11)), r#""burst";r=0;t=100"#, "that call never fits");
}

#[test]
fn the_style_decides_and_without_policies_there_is_nothing() {
    let given = Given { name: "burst".to_owned(), quota: 1, window: Some(WINDOW), decision: never() };
    assert!(written(HeaderStyle::None, &[given]).is_empty());
    assert!(written(HeaderStyle::Standard, &[]).is_empty());
    assert!(written(HeaderStyle::XRateLimit, &[]).is_empty());
}

/// Two layers on one route: both lists are sent, and the three `X-RateLimit` fields are those of the inner
/// layer.
#[test]
fn what_is_there_already_stays() {
    let (inner, outer) = (denied(Duration::from_secs(5)), allowed(9, 8, Duration::from_secs(7)));
    let mut headers = HeaderMap::new();
    for (name, quota, decision) in [("inner", 1, &inner), ("outer", 9, &outer)] {
        for style in [HeaderStyle::Standard, HeaderStyle::XRateLimit] {
            style.write([Policy { name, quota, window: None, decision }], &mut headers);
        }
    }
    let lines: Vec<&HeaderValue> = headers.get_all("ratelimit").iter().collect();
    assert_eq!(lines, [r#""inner";r=0;t=5"#, r#""outer";r=8;t=7"#]);
    assert_eq!(headers.get_all("ratelimit-policy").iter().count(), 2);
    assert_eq!(headers["x-ratelimit-limit"], "1");
    assert_eq!(headers["x-ratelimit-remaining"], "0");
    assert_eq!(headers["x-ratelimit-reset"], "5");
}
