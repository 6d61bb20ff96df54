//! Random rules, and random requests to them. All rules are valid.

use std::collections::BTreeMap;
use std::time::Duration;

use trypema::rules::{
    Action, CalendarPeriod, ConcurrencyNumbers, Condition, FixedWindowNumbers, IfMissing, KeyVerdict,
    Numbers, Override, Period, Rule, Rules, Scope,
};

use crate::random::Random;
use crate::rule_trace::{
    CheckBody, Mode, ReleaseBody, RenewBody, ReserveBody, SetBody, SettleBody, StepRequest,
};

/// The units that rules declare. Requests sometimes name another one.
const UNITS: [&str; 2] = ["tokens", "usd_micros"];

/// The attributes of requests that keys and conditions use, and their values.
const ATTRIBUTES: [(&str, &[&str]); 4] = [
    ("model", &["gpt-5", "gpt-5-mini", "claude-3"]),
    ("region", &["eu-1", "us-1"]),
    ("tenant", &["acme", "evil"]),
    ("user", &["ann", "bob", "root"]),
];

/// A path that servers read in several ways.
pub(super) const SEVERAL_READINGS: &str = "/c//../b";

/// Values of conditions, for any attribute.
const PATTERNS: [&str; 12] =
    ["gpt-5", "claude-3", "eu-1", "acme", "ann", "gpt-*", "*-mini", "*-*", "*-1", "a*", "g*-5", "*o*"];

/// Returns up to six rules with fixed windows or limits on units held, some overrides and lists.
pub fn draw_rules(random: &mut Random) -> Rules {
    let count = random.between(1, 6);
    let rules: Vec<Rule> = (0..count).map(|number| rule(random, number)).collect();
    let mut overrides: Vec<Override> = Vec::new();
    for rule in &rules {
        if random.once_in(3) {
            overrides.push(overriding(random, rule));
        }
    }
    let list = |random: &mut Random| match random.below(6) {
        0 => BTreeMap::from([("user".to_owned(), vec!["root".to_owned()])]),
        1 => BTreeMap::from([
            ("region".to_owned(), vec!["us-1".to_owned(), "us-2".to_owned()]),
            ("tenant".to_owned(), vec!["evil".to_owned()]),
        ]),
        _ => BTreeMap::new(),
    };
    let units = UNITS.map(str::to_owned).to_vec();
    Rules { units, rules, overrides, allow: list(random), block: list(random) }
}

fn rule(random: &mut Random, number: u64) -> Rule {
    let key: Vec<&str> = ["tenant", "user"].into_iter().filter(|_| random.once_in(2)).collect();
    let pattern: String = key.iter().map(|name| format!("{{{name}}}")).collect();
    let action = random.pick(&[Action::Reject, Action::Reject, Action::Throttle, Action::LogOnly]);
    let unit = random.pick(&[None, None, Some("requests"), Some("tokens"), Some("usd_micros")]);
    let strategy = if random.once_in(5) { slots(random) } else { numbers(random) };
    let is_slots = strategy.is_held();
    let scope = if key.is_empty() { Scope::Global } else { Scope::User };
    Rule {
        key_pattern: Some(pattern),
        unit: unit.map(str::to_owned),
        postpaid: !is_slots && random.once_in(5),
        plan_tiers: if random.once_in(8) { vec!["free".to_owned()] } else { Vec::new() },
        endpoints: endpoints(random),
        when: conditions(random, &key),
        action,
        max_delay: (action == Action::Throttle).then(|| Period(Duration::from_secs(random.between(1, 9)))),
        if_missing: random.pick(&[IfMissing::Skip, IfMissing::Skip, IfMissing::Deny, IfMissing::Error]),
        priority: random.between(0, 2) as i32,
        enabled: !random.once_in(12),
        ..Rule::new(format!("r{number}"), scope, strategy)
    }
}

fn numbers(random: &mut Random) -> Numbers {
    let (limit, zone, starts) = (random.between(1, 20), None, None);
    let window = random.pick(&[Some(10), Some(20), Some(60), None]);
    let window = window.map(|seconds| Period(Duration::from_secs(seconds)));
    let per = window.is_none().then(|| random.pick(&[CalendarPeriod::Day, CalendarPeriod::Week]));
    Numbers::FixedWindow(FixedWindowNumbers { limit, window, per, zone, starts })
}

fn slots(random: &mut Random) -> Numbers {
    let hold = Period(Duration::from_millis(random.pick(&[1_500, 10_000, 60_000])));
    Numbers::Concurrency(ConcurrencyNumbers { limit: random.between(1, 9), hold })
}

fn endpoints(random: &mut Random) -> Vec<String> {
    let endpoints: &[&str] = random.pick(&[&[][..], &[], &[], &["/a"], &["/b/**"], &["/a", "/b"]]);
    endpoints.iter().map(|endpoint| (*endpoint).to_owned()).collect()
}

/// Returns up to two conditions. A condition on an attribute of the key must be able to hold.
fn conditions(random: &mut Random, key: &[&str]) -> BTreeMap<String, Condition> {
    let count = random.pick(&[0, 0, 1, 1, 2]);
    let condition = |random: &mut Random| {
        let (name, _) = random.pick(&ATTRIBUTES);
        let values = |random: &mut Random| -> Vec<String> {
            (0..random.between(1, 3)).map(|_| random.pick(&PATTERNS).to_owned()).collect()
        };
        let condition = match random.below(4) {
            0 if !key.contains(&name) => Condition::Absent,
            0 | 1 => Condition::NoneOf(values(random)),
            2 if random.once_in(4) => Condition::OneOf(vec!["*".to_owned()]),
            _ => Condition::OneOf(values(random)),
        };
        (name.to_owned(), condition)
    };
    (0..count).map(|_| condition(random)).collect()
}

fn overriding(random: &mut Random, rule: &Rule) -> Override {
    let pattern = rule.key_pattern.as_deref().unwrap_or_default();
    let in_key = ATTRIBUTES.into_iter().filter(|(name, _)| pattern.contains(&format!("{{{name}}}")));
    let key: BTreeMap<String, String> =
        in_key.map(|(name, values)| (name.to_owned(), random.pick(values).to_owned())).collect();
    let verdict = random.pick(&[None, None, Some(KeyVerdict::Allow), Some(KeyVerdict::Block)]);
    let strategy = verdict.is_none().then(|| match rule.strategy.is_held() {
        true => slots(random),
        false => numbers(random),
    });
    Override { rule: rule.id.clone(), key, strategy, verdict }
}

/// Returns a step of a trace that has made `reservations` reservations, named `n0`, `n1` and so on.
pub fn draw_step(random: &mut Random, reservations: u64) -> StepRequest {
    let ttl =
        |random: &mut Random| Period(Duration::from_millis(random.pick(&[900, 4_000, 30_000, 3_600_000])));
    let reservation = |random: &mut Random| {
        // Mostly one of the last ones.
        let back = if random.once_in(4) { random.below(12) } else { random.below(3) };
        format!("n{}", reservations.saturating_sub(1 + back))
    };
    match random.below(12) {
        0..=2 if reservations > 0 => {
            let costs = if random.once_in(4) { BTreeMap::new() } else { costs(random) };
            StepRequest::Settle(SettleBody { reservation: reservation(random), costs })
        }
        3 if reservations > 0 => StepRequest::Release(ReleaseBody { reservation: reservation(random) }),
        4 if reservations > 0 => {
            StepRequest::Renew(RenewBody { reservation: reservation(random), ttl: ttl(random) })
        }
        5..=8 => {
            let id = random.once_in(3).then(|| random.pick(&["one", "two"]).to_owned());
            let ttl = (!random.once_in(3)).then(|| ttl(random));
            let check = draw_request(random);
            StepRequest::Reserve(
                ReserveBody { ttl, id, ..ReserveBody::of_check(check) },
                Some(format!("n{reservations}")),
            )
        }
        _ => StepRequest::Request(draw_request(random)),
    }
}

/// Returns a request of one or several attribute sets.
pub fn draw_request(random: &mut Random) -> CheckBody {
    let mode = random.pick(&[Mode::Check, Mode::Check, Mode::Check, Mode::Check, Mode::Peek, Mode::Record]);
    if random.once_in(2) {
        let SetBody { attributes, cost, costs } = set(random);
        return CheckBody { attributes: Some(attributes), cost, costs, sets: None, mode };
    }
    let count = random.between(1, 3);
    let sets = (0..count).map(|_| set(random)).collect();
    CheckBody { sets: Some(sets), mode, ..CheckBody::default() }
}

fn set(random: &mut Random) -> SetBody {
    let mut attributes = BTreeMap::new();
    for (name, values) in ATTRIBUTES {
        if random.once_in(2) {
            attributes.insert(name.to_owned(), random.pick(values).to_owned());
        }
    }
    if random.once_in(2) {
        let path = random.pick(&["/a", "/b", "/b/c", "/c", SEVERAL_READINGS]);
        attributes.insert("endpoint".to_owned(), path.to_owned());
    }
    if random.once_in(3) {
        attributes.insert("plan".to_owned(), random.pick(&["free", "pro"]).to_owned());
    }
    let (cost, costs) = match random.below(4) {
        0 => (None, None),
        1 => (Some(random.below(5)), None),
        _ => (None, Some(costs(random))),
    };
    SetBody { attributes, cost, costs }
}

fn costs(random: &mut Random) -> BTreeMap<String, u64> {
    let mut costs = BTreeMap::new();
    for unit in UNITS.into_iter().chain(["requests"]) {
        if random.once_in(2) {
            costs.insert(unit.to_owned(), random.below(8));
        }
    }
    if random.once_in(40) {
        costs.insert("bytes".to_owned(), 1);
    }
    costs
}
