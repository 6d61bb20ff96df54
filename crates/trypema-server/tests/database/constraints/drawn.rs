//! Random rules: valid ones, and rules with fields at their bounds and beyond.

use std::collections::BTreeMap;
use std::time::Duration;

use trypema::rules::{
    AbuseNumbers, Action, BucketLimit, BucketNumbers, CalendarPeriod, ConcurrencyNumbers, Condition,
    CounterNumbers, FixedWindowNumbers, IfMissing, Numbers, OnStoreFailure, Period, Rule, Scope,
    SuppressedNumbers, TierNumbers, WhileBlocked, WindowNumbers,
};
use trypema_testkit::random::Random;

/// The rule that candidates refer to. It must exist.
pub const LIVE: &str = "live";
/// The units that rules refer to. They must be declared.
pub const UNITS: [&str; 2] = ["tokens", "usd_micros"];

/// Integers at the bounds of some check, and their neighbours, up to the maximum of a column.
const COUNTS: [u64; 15] = [
    0,
    1,
    2,
    7,
    1_000,
    9_999,
    10_000,
    10_001,
    4_294_967_295,
    4_294_967_296,
    9_007_199_254_740_989,
    9_007_199_254_740_990,
    9_007_199_254_740_991,
    9_007_199_254_740_992,
    i64::MAX as u64,
];
/// Durations in microseconds: an hour, a leap year and their neighbours, and values too large for an integer
/// in Lua.
const PERIODS_US: [u64; 16] = [
    0,
    1,
    3,
    999,
    1_000,
    1_000_000,
    1_000_001,
    60_000_000,
    3_599_999_999,
    3_600_000_000,
    3_600_000_001,
    31_622_399_999_999,
    31_622_400_000_000,
    31_622_400_000_001,
    9_007_199_254_740_993,
    100_000_000_000_000_000,
];
const FRACTIONS: [f64; 22] = [
    f64::NAN,
    f64::NEG_INFINITY,
    f64::INFINITY,
    -1.0,
    -0.0,
    0.0,
    5e-324,
    1e-300,
    1e-9,
    1e-3,
    0.1,
    0.3,
    0.999_999_999_999,
    1.0,
    1.000_000_000_001,
    2.5,
    999_999.5,
    1e6,
    1_000_000.000_001,
    1e8,
    100_000_000.000_000_1,
    1e300,
];

type Mutation = fn(&mut Rule, &mut Random);
/// Each mutation sets one field to a bound or beyond it.
const MUTATIONS: [Mutation; 16] = [
    |rule, random| rule.id = one_of(random, &ids()),
    |rule, random| rule.name = Some(one_of(random, &texts())),
    |rule, random| rule.key_pattern = Some(one_of(random, &patterns())),
    |rule, random| rule.scope = scope(random),
    |rule, random| rule.endpoints.push(one_of(random, &endpoints())),
    |rule, random| rule.plan_tiers.push(one_of(random, &texts())),
    |rule, random| rule.max_delay = Some(period(random)),
    |rule, random| rule.action = action(random),
    |rule, random| rule.priority = random.pick(&[i32::MIN, -1, 0, i32::MAX]),
    |rule, random| {
        rule.candidate_for = Some(one_of(random, &[LIVE.into(), "missing".into(), rule.id.clone()]))
    },
    |rule, random| rule.share = Some(random.pick(&FRACTIONS)),
    |rule, random| rule.strategy = odd_numbers(random),
    |rule, random| rule.strategy = bucket_of_any(random),
    |rule, random| rule.unit = Some(one_of(random, &ids())),
    |rule, _| rule.postpaid = true,
    |rule, random| rule.when = odd_conditions(random),
];

/// Returns a rule with up to three fields at their bounds or beyond. Half of the rules are valid or nearly
/// so.
pub fn rule(random: &mut Random) -> Rule {
    let mut rule = valid(random);
    for _ in 0..random.below(4) {
        random.pick(&MUTATIONS)(&mut rule, random);
    }
    rule
}

/// Returns a valid rule.
pub fn valid(random: &mut Random) -> Rule {
    let action = action(random);
    let candidate_for = random.once_in(4).then(|| LIVE.to_owned());
    let pattern = random.pick(&[
        None,
        None,
        Some("{user}"),
        Some("tenant:{api_key}/{user}"),
        Some("é{a.b-c_d}{a.b-c_d}"),
    ]);
    let scope = random.pick(&[Scope::Tenant, Scope::User, Scope::Ip, Scope::Endpoint]);
    let strategy = numbers(random);
    let can_be_postpaid = !matches!(strategy, Numbers::Abuse(_) | Numbers::Concurrency(_));
    let id = format!("rule-{}", random.below(1_000));
    Rule {
        name: random.once_in(2).then(|| "O'Neil's \"limit\" \\ $1 ☂".to_owned()),
        key_pattern: pattern.map(str::to_owned),
        unit: random.pick(&[None, Some(UNITS[0]), Some(UNITS[1])]).map(str::to_owned),
        postpaid: random.once_in(3) && can_be_postpaid,
        when: conditions(random),
        plan_tiers: (0..random.below(3)).map(|plan| format!("plan {plan}, {{x}}")).collect(),
        endpoints: (0..random.below(3)).map(|_| random.pick(&ENDPOINTS).to_owned()).collect(),
        action,
        max_delay: (action == Action::Throttle && random.once_in(2))
            .then(|| micros(random.between(1, 3_600_000_000))),
        if_missing: [IfMissing::Skip, IfMissing::Deny, IfMissing::Error][scope as usize % 3],
        on_store_failure: random.pick(&[
            None,
            Some(OnStoreFailure::Error),
            Some(OnStoreFailure::Allow),
            Some(OnStoreFailure::Deny),
        ]),
        priority: random.below(200) as i32 - 100,
        enabled: !random.once_in(5),
        share: candidate_for.as_ref().and_then(|_| random.pick(&[None, Some(0.25), Some(1.0), Some(1e-9)])),
        candidate_for,
        ..Rule::new(id, scope, strategy)
    }
}

/// Returns conditions on attributes that are in no key.
fn conditions(random: &mut Random) -> BTreeMap<String, Condition> {
    let attributes = ["model", "region", "batch_id", "A.b_c-9"].into_iter().take(random.below(5) as usize);
    let conditions = attributes.map(|attribute| {
        let values = (0..random.between(1, 3)).map(|_| random.pick(&VALUES).to_owned()).collect();
        let condition = match random.below(4) {
            0 => Condition::Absent,
            1 => Condition::NoneOf(values),
            _ => Condition::OneOf(values),
        };
        (attribute.to_owned(), condition)
    });
    conditions.collect()
}

/// Returns a condition at the bounds, or beyond them.
fn odd_conditions(random: &mut Random) -> BTreeMap<String, Condition> {
    let mut attributes: Vec<String> =
        ["user", "api_key", "ip", "plan", "method", "endpoint", "model", "model", "a.b-c_d"]
            .map(str::to_owned)
            .into();
    attributes.extend(ids());
    let mut values: Vec<String> = ["*", "**", "*a", "absent", "not"].map(str::to_owned).into();
    values.extend(texts());
    let count = random.pick(&[0, 1, 1, 1, 2, 256, 257]);
    let chosen: Vec<String> = (0..count)
        .map(|_| if count < 3 { one_of(random, &values) } else { random.pick(&VALUES).to_owned() })
        .collect();
    let condition = random.pick(&[Condition::OneOf, Condition::NoneOf]);
    let condition = if random.once_in(4) { Condition::Absent } else { condition(chosen) };
    let mut conditions = BTreeMap::from([(one_of(random, &attributes), condition)]);
    if random.once_in(8) {
        let more = random.between(30, 33);
        conditions.extend((0..more).map(|number| (format!("attribute-{number}"), Condition::Absent)));
    }
    conditions
}

/// Values that every condition may have.
const VALUES: [&str; 8] = ["gpt-5", "claude-*", "*é*", "O'Neil", "\"\\ {}", "null", " ", "\u{a0}☂"];

/// Returns a bucket whose refill time exceeds the exact range by a ten-thousand-millionth of a microsecond.
pub fn hardly_inexact() -> Rule {
    let strategy = Numbers::TokenBucket(BucketNumbers {
        limit: Some(10_000_000_624_912),
        window: Some(micros(29_999_921_874_971)),
        burst: Some(1_000_003_000),
        ..BucketNumbers::default()
    });
    Rule { strategy, ..valid(&mut Random::seeded(1)) }
}

fn numbers(random: &mut Random) -> Numbers {
    let (limit, window) = (random.between(1, 1_000_000), micros(random.between(1, 86_400_000_000)));
    let group = random.once_in(2).then(|| milliseconds(random.between(1, 3_600_000)));
    let tier = |random: &mut Random| TierNumbers {
        window: micros(random.between(1, 31_622_400_000_000)),
        threshold: random.between(1, 10_000),
        block: micros(random.between(1, 31_622_400_000_000)),
    };
    match random.below(10) {
        0 => Numbers::Absolute(WindowNumbers { limit, window, group }),
        1 => {
            let hard_limit_factor = random.pick(&[None, Some(1.0), Some(1.1), Some(1e6)]);
            Numbers::Suppressed(SuppressedNumbers { limit, window, group, hard_limit_factor })
        }
        2 => Numbers::SlidingWindow(CounterNumbers { limit, window }),
        3 => Numbers::FixedWindow(CounterNumbers { limit, window }.into()),
        8 => Numbers::FixedWindow(calendar(random)),
        9 => {
            Numbers::Concurrency(ConcurrencyNumbers { limit, hold: micros(random.between(1, 3_600_000_000)) })
        }
        4 => {
            let while_blocked =
                random.pick(&[WhileBlocked::Count, WhileBlocked::Lengthen, WhileBlocked::Ignore]);
            Numbers::Abuse(AbuseNumbers { temp: tier(random), long: tier(random), while_blocked })
        }
        5 => Numbers::TokenBucket(BucketNumbers {
            limit: random.once_in(2).then(|| random.between(1, 1_000)),
            window: random.once_in(2).then(|| milliseconds(random.between(1, 100_000))),
            burst: Some(random.between(1, 10_000)),
            refill_rate: Some(random.pick(&[0.1, 1.0, 12.5, 1e6])),
            limits: Vec::new(),
        }),
        6 => {
            let limits = (0..random.between(1, 16)).map(|_| fine_limit(random)).collect();
            Numbers::TokenBucket(BucketNumbers { limits, ..BucketNumbers::default() })
        }
        _ => Numbers::TokenBucket(BucketNumbers {
            limit: Some(random.between(1, 1_000)),
            window: Some(milliseconds(random.between(1, 100_000))),
            burst: random.once_in(2).then(|| random.between(1, 1_000)),
            ..BucketNumbers::default()
        }),
    }
}

/// Returns a fixed window that follows a calendar.
fn calendar(random: &mut Random) -> FixedWindowNumbers {
    let (per, starts) = random.pick(&[
        (CalendarPeriod::Day, "06:30"),
        (CalendarPeriod::Week, "sunday"),
        (CalendarPeriod::Month, "28"),
        (CalendarPeriod::Month, "1"),
    ]);
    FixedWindowNumbers {
        limit: random.between(1, 1_000_000),
        window: None,
        per: Some(per),
        zone: random.pick(&[None, Some("UTC"), Some("Europe/Berlin"), Some("Etc/GMT+12")]).map(str::to_owned),
        starts: random.once_in(2).then(|| starts.parse().unwrap()),
    }
}

/// Returns a fixed window with fields that exclude each other, or that do not fit. The lists of zones of the
/// database and the compiler may differ, so each zone is well known, in the wrong case, or malformed.
fn odd_calendar(random: &mut Random) -> FixedWindowNumbers {
    let starts = random.pick(&[None, Some("00:00"), Some("monday"), Some("1"), Some("28")]);
    FixedWindowNumbers {
        limit: random.pick(&[1, 1, 1, 0, 9_007_199_254_740_991, 9_007_199_254_740_992]),
        window: random.once_in(3).then(|| period(random)),
        per: random.pick(&[
            None,
            Some(CalendarPeriod::Day),
            Some(CalendarPeriod::Week),
            Some(CalendarPeriod::Month),
        ]),
        zone: random
            .pick(&[
                None,
                None,
                Some("Europe/Berlin"),
                Some("europe/berlin"),
                Some("Utc"),
                Some(""),
                Some("a b"),
                Some("/"),
                Some("é"),
            ])
            .map(str::to_owned),
        starts: starts.map(|starts| starts.parse().unwrap()),
    }
}

/// Returns any strategy, with numbers at their bounds.
fn odd_numbers(random: &mut Random) -> Numbers {
    let (limit, window) = (random.pick(&COUNTS), period(random));
    let group = random.once_in(2).then(|| {
        milliseconds(random.pick(&[0, 1, 10, 3_599_999, 3_600_000, 3_600_001, 9_000_000_000_000_000]))
    });
    let tier = |random: &mut Random| {
        // Mostly one field is wrong, so that each error is tested by itself.
        let mut tier = TierNumbers { window: milliseconds(5), threshold: 3, block: milliseconds(7) };
        match random.below(6) {
            0 => tier.window = period(random),
            1 => tier.threshold = random.pick(&COUNTS),
            2 => tier.block = period(random),
            _ => {}
        }
        tier
    };
    match random.below(8) {
        7 => Numbers::Concurrency(ConcurrencyNumbers { limit, hold: window }),
        6 => Numbers::FixedWindow(odd_calendar(random)),
        0 => Numbers::Absolute(WindowNumbers { limit, window, group }),
        1 => {
            let hard_limit_factor = Some(random.pick(&FRACTIONS));
            Numbers::Suppressed(SuppressedNumbers { limit, window, group, hard_limit_factor })
        }
        2 => Numbers::SlidingWindow(CounterNumbers { limit, window }),
        3 => Numbers::FixedWindow(CounterNumbers { limit, window }.into()),
        4 => Numbers::Abuse(AbuseNumbers {
            temp: tier(random),
            long: tier(random),
            while_blocked: WhileBlocked::Count,
        }),
        _ => {
            let limit = |random: &mut Random| BucketLimit {
                limit: random.pick(&COUNTS),
                window: period(random),
                burst: random.once_in(2).then(|| random.pick(&COUNTS)),
            };
            let single = random.once_in(4).then(|| random.between(1, 10));
            let limits = (0..random.pick(&[0, 1, 2, 5, 16, 17]))
                .map(|_| if random.once_in(4) { limit(random) } else { fine_limit(random) });
            Numbers::TokenBucket(BucketNumbers {
                limits: limits.collect(),
                limit: single,
                ..BucketNumbers::default()
            })
        }
    }
}

fn fine_limit(random: &mut Random) -> BucketLimit {
    let window = milliseconds(random.between(1, 1_000));
    BucketLimit {
        limit: random.between(1, 100),
        window,
        burst: random.once_in(2).then(|| random.between(1, 100)),
    }
}

/// Returns a bucket with numbers of any size, many of which are too large to be counted exactly.
fn bucket_of_any(random: &mut Random) -> Numbers {
    let sized = |random: &mut Random| {
        let bits = random.between(1, 63);
        if random.once_in(3) { random.pick(&COUNTS) } else { random.next_u64() >> (64 - bits) }
    };
    let time = |random: &mut Random| {
        let bits = random.between(1, 55);
        if random.once_in(3) { period(random) } else { micros(random.next_u64() >> (64 - bits)) }
    };
    let rate = |random: &mut Random| {
        let power = random.below(22) as i32 - 11;
        if random.once_in(3) {
            random.pick(&FRACTIONS)
        } else {
            random.between(1, 999) as f64 * 10_f64.powi(power)
        }
    };
    Numbers::TokenBucket(BucketNumbers {
        limit: (!random.once_in(3)).then(|| sized(random)),
        window: (!random.once_in(3)).then(|| time(random)),
        burst: random.once_in(2).then(|| sized(random)),
        refill_rate: random.once_in(3).then(|| rate(random)),
        limits: Vec::new(),
    })
}

const ENDPOINTS: [&str; 8] =
    ["/", "/**", "/api/search", "/users/*/posts", "/api/**", "POST /login", "/users/{id}", "//a///ü/"];

fn endpoints() -> Vec<String> {
    let long = "/a".repeat(32);
    let mut endpoints: Vec<String> = [
        "", "a", "*", "/a/**/b", "/***", "/a*", "/{}", "/{a}{b}", "/{a*}", "/{a:b}", "/{a b}", "/{a", "/a}",
        "/:id", "/a:b", "/.", "/..", "/...", "/a/./b", "/a?b", "/a#b", "/a%20b", "/a b", "get /a", "GET  /a",
        " /a", "GET a", "GÉT /a", "GET /a b", "GET", "GET ", "GET /", "/**/", "//**//", "/\u{7f}", "/\u{85}",
        "/\t", "/\u{a0}", "/{\u{1}}", "/*/**", "/**/**",
    ]
    .map(str::to_owned)
    .into();
    endpoints.extend([
        long.clone(),
        format!("{long}/**"),
        format!("{long}/b"),
        format!("{long}/b/**"),
        "/".repeat(300),
    ]);
    endpoints.extend([format!("/{}", "é".repeat(300)), "/{".to_owned() + &"x".repeat(300) + "}"]);
    endpoints
}

fn ids() -> Vec<String> {
    let mut ids: Vec<String> =
        ["", "a", "A.b_c-9", "a b", "é", "a/b", "a\n", "\na", "a\u{1}", LIVE].map(str::to_owned).into();
    ids.extend([64, 65].map(|length| "x".repeat(length)));
    ids
}

/// Returns texts, some of 254 to 256 characters, which have more bytes.
fn texts() -> Vec<String> {
    let mut texts: Vec<String> = [
        "", " ", "a", "a\nb", "\u{1}", "\u{1f}", "\u{7f}", "\u{80}", "\u{9f}", "\u{a0}", "\u{200b}", "'",
        "{a,b}", "NULL", "\\",
    ]
    .map(str::to_owned)
    .into();
    texts.extend([254, 255, 256].map(|length| "☂".repeat(length)));
    texts.push("a".repeat(300));
    texts
}

fn patterns() -> Vec<String> {
    let mut patterns: Vec<String> = [
        "",
        "plain",
        "{",
        "}",
        "{}",
        "{user",
        "user}",
        "{user}}",
        "{{user}}",
        "}{",
        "{us er}",
        "{é}",
        "a\nb{user}\n",
        "{user}{ip}",
        "{user\n}",
        "\u{1}{user}",
    ]
    .map(str::to_owned)
    .into();
    patterns.extend([64, 65].map(|length| format!("{{{}}}", "x".repeat(length))));
    patterns.extend([249, 250].map(|length| format!("{}{{user}}", "é".repeat(length))));
    patterns
}

fn scope(random: &mut Random) -> Scope {
    random.pick(&[Scope::Global, Scope::Tenant, Scope::User, Scope::Ip, Scope::Endpoint])
}

fn action(random: &mut Random) -> Action {
    random.pick(&[Action::Reject, Action::Throttle, Action::LogOnly])
}

fn period(random: &mut Random) -> Period {
    micros(random.pick(&PERIODS_US))
}

fn micros(micros: u64) -> Period {
    Period(Duration::from_micros(micros))
}

fn milliseconds(milliseconds: u64) -> Period {
    Period(Duration::from_millis(milliseconds))
}

fn one_of(random: &mut Random, choices: &[String]) -> String {
    choices[random.below(choices.len() as u64) as usize].clone()
}
