//! Converts the limits of traces to rules.

use std::collections::BTreeMap;
use std::time::Duration;

use trypema::rules::{
    AbuseNumbers, Action, BucketLimit, BucketNumbers, CalendarPeriod, CounterNumbers, FixedWindowNumbers,
    IfMissing, Numbers, Period, Rule, RuleSet, Rules, Scope, Starts, SuppressedNumbers, TierNumbers,
    WhileBlocked, WindowNumbers,
};
use trypema::{CalendarStart, FixedWindowLimit};
use trypema_testkit::trace::{Limit, Line, What};

/// The id of the only rule.
pub const RULE: &str = "traced";

/// Returns the only rule, with the limit of a line, or `None` if rules cannot express it.
pub fn rules_of(line: &Line) -> Option<RuleSet> {
    let What::Limit(limit) = &line.what else { return None };
    // Stickiness is a property of the library's own calls. Rules do not have it.
    if line.text.contains("sticky") {
        return None;
    }
    let rule = Rule {
        id: RULE.to_owned(),
        name: None,
        scope: Scope::User,
        key_pattern: Some("{key}".to_owned()),
        strategy: numbers(limit, &line.text)?,
        plan_tiers: Vec::new(),
        endpoints: Vec::new(),
        action: Action::Reject,
        max_delay: None,
        if_missing: IfMissing::Skip,
        on_store_failure: None,
        priority: 100,
        enabled: true,
        candidate_for: None,
        share: None,
        unit: None,
        postpaid: false,
        when: BTreeMap::new(),
    };
    RuleSet::compile(&Rules { rules: vec![rule], ..Rules::default() }).ok()
}

fn numbers(limit: &Limit, text: &str) -> Option<Numbers> {
    let options = limit.compat.map(|compat| compat.options);
    Some(match &limit.limit {
        trypema::Limit::Absolute(limit) => Numbers::Absolute(WindowNumbers {
            limit: limit.capacity(),
            window: Period(limit.window()),
            group: Some(group(*options?.rate_group_size_ms)),
        }),
        trypema::Limit::Suppressed(limit) => Numbers::Suppressed(SuppressedNumbers {
            limit: limit.soft(),
            window: Period(limit.window()),
            group: Some(group(*options?.rate_group_size_ms)),
            hard_limit_factor: Some(*options?.hard_limit_factor),
        }),
        trypema::Limit::TokenBucket(limits) => {
            let limits = limits.as_slice().iter().map(|limit| BucketLimit {
                limit: limit.capacity(),
                window: Period(limit.refill_every()),
                burst: None,
            });
            Numbers::TokenBucket(BucketNumbers { limits: limits.collect(), ..BucketNumbers::default() })
        }
        trypema::Limit::FixedWindow(limit) => Numbers::FixedWindow(fixed_window(limit)),
        trypema::Limit::SlidingWindow(limit) => {
            Numbers::SlidingWindow(CounterNumbers { limit: limit.limit(), window: Period(limit.window()) })
        }
        // The limit type does not expose its tiers, so they are read from the line.
        trypema::Limit::Abuse(_) => Numbers::Abuse(AbuseNumbers {
            temp: tier(text, "short="),
            long: tier(text, "long="),
            while_blocked: match text {
                text if text.contains("while_blocked=ignore") => WhileBlocked::Ignore,
                text if text.contains("while_blocked=lengthen") => WhileBlocked::Lengthen,
                _ => WhileBlocked::Count,
            },
        }),
        // A check over HTTP holds nothing, so it skips a rule with a concurrency limit.
        _ => return None,
    })
}

fn fixed_window(limit: &FixedWindowLimit) -> FixedWindowNumbers {
    let Some(calendar) = limit.calendar_window() else {
        return CounterNumbers { limit: limit.limit(), window: Period(limit.window()) }.into();
    };
    let per = match calendar.starts() {
        CalendarStart::Day { .. } => CalendarPeriod::Day,
        CalendarStart::Week(_) => CalendarPeriod::Week,
        CalendarStart::Month { .. } => CalendarPeriod::Month,
    };
    FixedWindowNumbers {
        limit: limit.limit(),
        window: None,
        per: Some(per),
        zone: Some(calendar.zone().to_owned()),
        starts: Some(Starts(calendar.starts())),
    }
}

fn group(milliseconds: u64) -> Period {
    Period(Duration::from_millis(milliseconds))
}

/// Parses a tier such as `60s/3/600s` after its name.
fn tier(text: &str, name: &str) -> TierNumbers {
    let word = text.split_whitespace().find_map(|word| word.strip_prefix(name)).unwrap();
    let parts: Vec<&str> = word.split('/').collect();
    TierNumbers {
        window: parts[0].parse().unwrap(),
        threshold: parts[1].parse().unwrap(),
        block: parts[2].parse().unwrap(),
    }
}
