//! `RateLimit` and `RateLimit-Policy`, read by a third-party parser of structured fields.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;
use sfv::{BareItem, Item, List, ListEntry, Parser};
use trypema::clock::ManualClock;
use trypema::http::{HeaderStyle, Policy, QuotaUnit, retry_after_seconds};
use trypema::{ConcurrencyLimit, Decision, RateLimiter, TokenBucketLimits, TokenLimit};

use super::{MAX_LIMIT, WINDOW, allowed, decided, denied, names, never, rounded_up, waits};

/// The largest integer of a structured field.
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// The parts of a policy.
#[derive(Debug, Clone)]
struct Given {
    name: String,
    quota: u64,
    window: Option<Duration>,
    unit: QuotaUnit,
    decision: Decision,
}

impl Given {
    fn policy(&self) -> Policy<'_> {
        let Self { name, quota, window, unit, decision } = self;
        Policy { name, quota: *quota, window: *window, unit: *unit, decision }
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
    let unit = prop_oneof![
        4 => Just(QuotaUnit::Spent),
        1 => Just(QuotaUnit::ConcurrentRequests),
        1 => Just(QuotaUnit::Held),
    ];
    let given = (names(), quotas, prop::option::of(durations()), unit, decisions())
        .prop_map(|(name, quota, window, unit, decision)| Given { name, quota, window, unit, decision });
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

/// The parameters of an item except `qu`, all of which must be integers.
fn numbers(item: &Item) -> Vec<(&str, u64)> {
    let number = |value: &BareItem| u64::try_from(i64::from(value.as_integer().unwrap())).unwrap();
    let others = item.params.iter().filter(|(key, _)| key.as_str() != "qu");
    others.map(|(key, value)| (key.as_str(), number(value))).collect()
}

/// The parameter `qu`, which must be a string.
fn quota_unit(item: &Item) -> Option<&str> {
    let value = item.params.iter().find(|(key, _)| key.as_str() == "qu");
    value.map(|(_, value)| value.as_string().unwrap().as_str())
}

/// The wait of a denied request that can succeed later; otherwise the time until the limit is full again,
/// which is unknown if units are held.
fn reset_after(given: &Given) -> Option<Duration> {
    let decision = &given.decision;
    if decision.is_allowed() || decision.is_never() {
        return (given.unit == QuotaUnit::Spent).then(|| decision.reset_after());
    }
    decision.retry_after()
}

/// The policies that the header lists: the first 12, then up to 11 of the remaining ones that denied.
fn listed(policies: &[Given]) -> Vec<&Given> {
    let (first, rest) = policies.split_at(policies.len().min(12));
    let denied = rest.iter().filter(|given| !given.decision.is_allowed());
    first.iter().chain(denied.take(11)).collect()
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
            let is_concurrent = given.unit == QuotaUnit::ConcurrentRequests;
            let window = given.window.filter(|_| !is_concurrent);
            let window = window.map(|window| ("w", rounded_up(window).clamp(1, MAX_INTEGER)));
            prop_assert_eq!(quota_unit(limit), is_concurrent.then_some("concurrent-requests"));
            let expected: Vec<_> = [("q", given.quota.min(MAX_INTEGER))].into_iter().chain(window).collect();
            prop_assert_eq!(numbers(limit), expected);
            let remaining = given.decision.remaining().min(MAX_INTEGER);
            let reset = reset_after(given).map(|reset| ("t", rounded_up(reset)));
            let expected: Vec<_> = [("r", remaining)].into_iter().chain(reset).collect();
            prop_assert_eq!(numbers(left), expected);
        }
    }

    #[test]
    fn names_are_shown_whole_where_they_can_be(name in names()) {
        let given =
            Given { name: name.clone(), quota: 1, window: None, unit: QuotaUnit::Spent, decision: never() };
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
            unit: QuotaUnit::Spent,
            decision: never(),
        };
        let headers = written(HeaderStyle::Standard, &[given(&one), given(&other)]);
        let items = items(&headers, "ratelimit");
        prop_assert_ne!(name_of(&items[0]), name_of(&items[1]));
    }

    #[test]
    fn x_ratelimit_is_three_numbers(policies in policies()) {
        let headers = written(HeaderStyle::XRateLimit, &policies);
        let number = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().parse::<u64>().unwrap());
        let reset = number("x-ratelimit-reset");
        prop_assert_eq!(headers.len(), 2 + usize::from(reset.is_some()), "{:?}", headers);
        let shown = [number("x-ratelimit-limit"), number("x-ratelimit-remaining"), reset];
        let is_shown = |given: &Given| {
            let decision = &given.decision;
            let is_held = given.unit != QuotaUnit::Spent && decision.is_allowed();
            let reset = if is_held { Some(0) } else { reset_after(given).map(rounded_up) };
            shown == [Some(given.quota), Some(decision.remaining()), reset]
        };
        prop_assert!(policies.iter().any(is_shown), "{shown:?} is of none");
    }
}

#[test]
fn a_list_reads_as_the_draft_shows_it() {
    let burst = allowed(100, 50, Duration::from_secs(30));
    let daily = denied(Duration::from_micros(1));
    let policies = [
        Policy {
            name: "burst",
            quota: 100,
            window: Some(Duration::from_secs(60)),
            unit: QuotaUnit::Spent,
            decision: &burst,
        },
        Policy { name: "say \"\\\"", quota: 1, window: None, unit: QuotaUnit::Spent, decision: &daily },
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
        let given =
            Given { name: "burst".to_owned(), quota: 10, window: None, unit: QuotaUnit::Spent, decision };
        written(HeaderStyle::Standard, &[given])["ratelimit"].clone()
    };
    assert_eq!(shown(take(10)), r#""burst";r=0;t=100"#);
    let denied = take(1);
    assert_eq!(shown(denied), r#""burst";r=0;t=10"#);
    assert_eq!(retry_after_seconds(&denied), Some(10));
    assert_eq!(shown(take(11)), r#""burst";r=0;t=100"#, "that call never fits");
}

/// A limit on requests in flight has no window, and its units come back when somebody releases them. Draft 10
/// has no name for other units that are held.
#[test]
fn units_that_are_held_have_no_window() {
    let rl = RateLimiter::builder().clock(Arc::new(ManualClock::default())).build().unwrap();
    let limit = ConcurrencyLimit::new(2, Duration::from_secs(60)).unwrap();
    let decisions = [1, 2, 1, 3].map(|cost| rl.local().concurrency().take("ann", &limit, cost));
    assert_eq!(decisions.map(|decision| decision.is_allowed()), [true, false, true, false]);
    let shown = |unit, decision| {
        let given = Given { name: "in-flight".to_owned(), quota: 2, window: None, unit, decision };
        let mut headers = written(HeaderStyle::Standard, std::slice::from_ref(&given));
        headers.extend(written(HeaderStyle::XRateLimit, &[given]));
        let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap().to_owned());
        assert_eq!(text("x-ratelimit-limit").as_deref(), Some("2"));
        [text("ratelimit-policy"), text("ratelimit"), text("x-ratelimit-reset")]
            .map(Option::unwrap_or_default)
    };
    let quota = r#""in-flight";q=2;qu="concurrent-requests""#;
    let expected = [
        [quota, r#""in-flight";r=1"#, "0"],
        [quota, r#""in-flight";r=1;t=1"#, "1"],
        [quota, r#""in-flight";r=0"#, "0"],
        [quota, r#""in-flight";r=0"#, ""], // never fits
    ];
    assert_eq!(decisions.map(|decision| shown(QuotaUnit::ConcurrentRequests, decision)), expected);
    assert_eq!(shown(QuotaUnit::Held, decisions[1]), [r#""in-flight";q=2"#, r#""in-flight";r=1;t=1"#, "1"]);
}

#[test]
fn the_style_decides_and_without_policies_there_is_nothing() {
    let given = Given {
        name: "burst".to_owned(),
        quota: 1,
        window: Some(WINDOW),
        unit: QuotaUnit::Spent,
        decision: never(),
    };
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
            style.write(
                [Policy { name, quota, window: None, unit: QuotaUnit::Spent, decision }],
                &mut headers,
            );
        }
    }
    let lines: Vec<&HeaderValue> = headers.get_all("ratelimit").iter().collect();
    assert_eq!(lines, [r#""inner";r=0;t=5"#, r#""outer";r=8;t=7"#]);
    assert_eq!(headers.get_all("ratelimit-policy").iter().count(), 2);
    assert_eq!(headers["x-ratelimit-limit"], "1");
    assert_eq!(headers["x-ratelimit-remaining"], "0");
    assert_eq!(headers["x-ratelimit-reset"], "5");
}
