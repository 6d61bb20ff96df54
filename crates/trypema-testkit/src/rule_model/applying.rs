//! Which rules apply to a request, under which counters, at which cost.

use trypema::rules::{Condition, IfMissing, KeyVerdict, Override, Rule, Rules, Scope};

use super::draw::SEVERAL_READINGS;
use super::limit::ModelLimit;
use crate::rule_trace::SetBody;

/// A rule that applies to a request.
#[derive(Debug)]
pub(super) struct Asked<'m> {
    pub(super) rule: &'m Rule,
    pub(super) part: AskedPart,
}

/// The part of a request in one rule: a counter and its cost, a block, or a missing input.
#[derive(Debug)]
pub(super) enum AskedPart {
    Counter {
        key: String,
        limit: ModelLimit,
        cost: u64,
    },
    /// An override blocks the counter.
    Blocked {
        key: String,
    },
    /// The request lacks this attribute or unit.
    Missing {
        name: String,
    },
}

/// The purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// "Plain checks cannot hold anything: they skip the rule."
    Check,
    Reserve,
}

/// Returns the rules that apply, by priority. The error is that of a rule with `if_missing: error`.
pub(super) fn applying<'m>(
    written: &'m Rules,
    sets: &[SetBody],
    exempting: &[Option<String>],
    purpose: Purpose,
) -> Result<Vec<Asked<'m>>, String> {
    let is_asked = |rule: &Rule| purpose == Purpose::Reserve || !rule.strategy.is_held();
    let mut rules: Vec<&Rule> = written.rules.iter().filter(|rule| rule.enabled && is_asked(rule)).collect();
    rules.sort_by_key(|rule| (rule.priority, &rule.id));
    let mut all = Vec::new();
    for rule in rules {
        let mut of_rule: Vec<AskedPart> = Vec::new();
        let counted = sets.iter().zip(exempting).filter(|(_, exempting)| exempting.is_none());
        for (set, _) in counted.filter(|(set, _)| is_for(rule, set)) {
            if let Some(part) = asked_of(written, rule, set, sets)? {
                add(&mut of_rule, part);
            }
        }
        all.extend(of_rule.into_iter().map(|part| Asked { rule, part }));
    }
    Ok(all)
}

/// Returns the part of a rule that is for a set.
fn asked_of(
    written: &Rules,
    rule: &Rule,
    set: &SetBody,
    sets: &[SetBody],
) -> Result<Option<AskedPart>, String> {
    let placeholders = placeholders(rule);
    if placeholders.iter().any(|name| !set.attributes.contains_key(name)) {
        // "An attribute is missing if no set has it."
        let has = |name: &&String| sets.iter().any(|set| set.attributes.contains_key(*name));
        return match placeholders.iter().find(|name| !has(name)) {
            Some(name) => {
                missing(rule, name, || format!("the request has no {name:?}, which rule {:?} needs", rule.id))
            }
            None => Ok(None),
        };
    }
    let key = placeholders.iter().fold(rule.id.clone(), |key, name| {
        format!("{key}|{name}={}", set.attributes.get(name).map_or("", String::as_str))
    });
    let is_for_key = |overriding: &&Override| {
        let has_value = |name: &String| overriding.key.get(name) == set.attributes.get(name);
        overriding.rule == rule.id && placeholders.iter().all(has_value)
    };
    let overriding = written.overrides.iter().find(is_for_key);
    let verdict = overriding.and_then(|overriding| overriding.verdict);
    match verdict {
        Some(KeyVerdict::Allow) => return Ok(None),
        Some(KeyVerdict::Block) => return Ok(Some(AskedPart::Blocked { key })),
        None => {}
    }
    let unit = rule.unit.as_deref().unwrap_or("requests");
    let Some(cost) = cost(set, unit) else {
        // "A rule whose unit the request does not name treats it as a missing attribute."
        let is_named = sets.iter().any(|set| cost_is_named(set, unit));
        return if is_named {
            Ok(None)
        } else {
            missing(rule, unit, || {
                format!("the request has no cost in {unit:?}, which rule {:?} counts", rule.id)
            })
        };
    };
    let strategy = overriding.and_then(|overriding| overriding.strategy.as_ref());
    let limit = ModelLimit::of(strategy.unwrap_or(&rule.strategy));
    Ok(limit.map(|limit| AskedPart::Counter { key, limit, cost }))
}

/// Adds a part of a rule. "A counter that two sets hit is asked for the sum." A rule denies a request once for
/// what it lacks.
fn add(parts: &mut Vec<AskedPart>, new: AskedPart) {
    for known in parts.iter_mut() {
        match (known, &new) {
            (AskedPart::Counter { key, cost, .. }, AskedPart::Counter { key: same, cost: more, .. })
                if key == same =>
            {
                *cost = cost.saturating_add(*more);
                return;
            }
            (AskedPart::Blocked { key }, AskedPart::Blocked { key: same }) if key == same => return,
            (AskedPart::Missing { .. }, AskedPart::Missing { .. }) => return,
            _ => {}
        }
    }
    parts.push(new);
}

fn missing(rule: &Rule, name: &str, error: impl FnOnce() -> String) -> Result<Option<AskedPart>, String> {
    match rule.if_missing {
        IfMissing::Skip => Ok(None),
        IfMissing::Error if !rule.is_shadow() => Err(error()),
        _ => Ok(Some(AskedPart::Missing { name: name.to_owned() })),
    }
}

/// "`cost: 5` is shorthand for `requests`. `requests` defaults to 1."
fn cost(set: &SetBody, unit: &str) -> Option<u64> {
    let named = set.costs.as_ref().and_then(|costs| costs.get(unit)).copied();
    if unit == "requests" { named.or(set.cost).or(Some(1)) } else { named }
}

fn cost_is_named(set: &SetBody, unit: &str) -> bool {
    cost(set, unit).is_some()
}

/// Returns the names of a rule's placeholders, in alphabetical order.
fn placeholders(rule: &Rule) -> Vec<String> {
    let of_scope = match rule.scope {
        Scope::Global => "",
        Scope::Tenant => "{tenant}",
        Scope::User => "{user}",
        Scope::Ip => "{ip}",
        Scope::Endpoint => "{endpoint}",
    };
    let pattern = rule.key_pattern.as_deref().unwrap_or(of_scope);
    let after_brace = pattern.split('{').skip(1);
    let mut names: Vec<String> =
        after_brace.filter_map(|text| Some(text.split_once('}')?.0.to_owned())).collect();
    names.sort();
    names.dedup();
    names
}

/// Whether a rule's endpoints, plans and conditions are for a set.
fn is_for(rule: &Rule, set: &SetBody) -> bool {
    let (endpoint, plan) = (set.attributes.get("endpoint"), set.attributes.get("plan"));
    let is_for_path = |path: &str| rule.endpoints.iter().any(|pattern| is_at(pattern, path));
    let has_endpoint =
        rule.endpoints.is_empty() || endpoint.is_some_and(|path| readings(path).any(is_for_path));
    let has_plan = rule.plan_tiers.is_empty() || plan.is_some_and(|plan| rule.plan_tiers.contains(plan));
    let holds = |(name, condition): (&String, &Condition)| {
        let value = set.attributes.get(name);
        let is_among = |patterns: &[String]| {
            value.is_some_and(|value| patterns.iter().any(|pattern| is_like(pattern, value)))
        };
        match condition {
            Condition::OneOf(patterns) => is_among(patterns),
            Condition::NoneOf(patterns) => !is_among(patterns),
            Condition::Absent => value.is_none(),
        }
    };
    has_endpoint && has_plan && rule.when.iter().all(holds)
}

/// "A rule applies if it matches any reading." Returns the readings of the only path with several that is drawn, and
/// others as they are.
fn readings(path: &str) -> impl Iterator<Item = &str> {
    let several = if path == SEVERAL_READINGS { &["/b", "/c/b", "/c/../b"][..] } else { &[] };
    several.iter().copied().chain(several.is_empty().then_some(path))
}

/// Whether an endpoint, which is a path or ends with `/**`, is for a path.
fn is_at(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix("/**") {
        Some(above) => path == above || path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/')),
        None => pattern == path,
    }
}

/// Whether a value is like a pattern, in which `*` stands for any text.
fn is_like(pattern: &str, value: &str) -> bool {
    match pattern.split_at_checked(1) {
        None => value.is_empty(),
        Some(("*", rest)) => {
            (0..=value.len()).filter_map(|at| value.get(at..)).any(|value| is_like(rest, value))
        }
        Some((first, rest)) => value.strip_prefix(first).is_some_and(|value| is_like(rest, value)),
    }
}
