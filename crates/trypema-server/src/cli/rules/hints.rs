//! Hints about rules that are valid, but may not do what their author meant.

use std::collections::BTreeMap;

use trypema::rules::{IfMissing, NeededAttribute, Numbers, Rule, RuleSet};

/// The attributes that `/v1/forward-auth` derives from the proxy's headers. `POST /v1/check` derives none:
/// its caller sends every attribute.
const OF_FORWARD_AUTH: [&str; 4] = ["endpoint", "host", "ip", "method"];

/// The attribute that `plan_tiers` are compared with.
const PLAN: &str = "plan";

/// The number of rules that one hint names, to keep it short.
const MAX_NAMED: usize = 5;

/// Returns hints about likely mistakes, one line each.
pub(super) fn hints(rules: &RuleSet) -> Vec<String> {
    let missing = rules.needed_attributes().filter_map(|needed| of_attribute(&needed));
    let unmatched = rules.unmatched_overrides().map(|unmatched| {
        format!(
            "override of rule `{}` for endpoint {:?} never applies: the rule counts requests by its own endpoints ({})",
            unmatched.rule.id,
            unmatched.endpoint,
            unmatched.rule.endpoints.join(", "),
        )
    });
    let plan = of_rules(rules, |rule| !rule.plan_tiers.is_empty()).map(|ids| {
        format!(
            "no front end sets `{PLAN}`; send it in checks, or set it in the forward-auth profile; requests without \
             it are not limited by {ids}"
        )
    });
    let in_flight = of_rules(rules, |rule| matches!(rule.strategy, Numbers::Concurrency(_)));
    let concurrency = in_flight
        .map(|ids| format!("only reservations hold units; checks and forward-auth are not limited by {ids}"));
    missing.chain(plan).chain(unmatched).chain(concurrency).chain(of_number(rules)).collect()
}

/// Lists the enabled rules that `is_meant` selects, if there are any.
fn of_rules(rules: &RuleSet, is_meant: impl Fn(&Rule) -> bool) -> Option<String> {
    let meant = rules.rules().filter(|rule| rule.enabled && is_meant(rule));
    let ids: Vec<&str> = meant.map(|rule| rule.id.as_str()).collect();
    (!ids.is_empty()).then(|| listed(&ids))
}

/// The effect of a missing attribute, in the order of the hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Consequence {
    Denied,
    Refused,
    Recorded,
    Skipped,
}

impl Consequence {
    fn text(self) -> &'static str {
        match self {
            Self::Denied => "denied by",
            Self::Refused => "refused by",
            Self::Recorded => "only recorded by",
            Self::Skipped => "not limited by",
        }
    }
}

/// Returns a hint about an attribute that no front end derives, with the effect on requests that lack it.
fn of_attribute(needed: &NeededAttribute<'_>) -> Option<String> {
    if OF_FORWARD_AUTH.contains(&needed.name) {
        return None;
    }
    let mut ids: BTreeMap<Consequence, Vec<&str>> = BTreeMap::new();
    for rule in &needed.rules {
        let consequence = match rule.if_missing {
            IfMissing::Skip => Consequence::Skipped,
            _ if rule.is_shadow() => Consequence::Recorded,
            IfMissing::Deny => Consequence::Denied,
            IfMissing::Error => Consequence::Refused,
        };
        ids.entry(consequence).or_default().push(&rule.id);
    }
    let is_skipping = ids.contains_key(&Consequence::Skipped);
    let consequences: Vec<String> =
        ids.iter().map(|(consequence, ids)| format!("{} {}", consequence.text(), listed(ids))).collect();
    let advice = if is_skipping { " (set `if_missing: deny` or `error` to change that)" } else { "" };
    Some(format!(
        "no front end sets `{}`; send it in checks, or set it in the forward-auth profile; requests without it \
         are {}{advice}",
        needed.name,
        consequences.join(", "),
    ))
}

fn of_number(rules: &RuleSet) -> Option<String> {
    let (most, max) = (rules.applying_upper_bound(), RuleSet::MAX_APPLYING);
    (most > max).then(|| {
        format!(
            "up to {most} rules can apply to one attribute set; a request to which more than {max} rules apply fails (upper \
             bound, computed from endpoints, methods, plans and conditions, for a set with every attribute)"
        )
    })
}

/// Formats ids as "`a`, `b` and 3 more".
fn listed(ids: &[&str]) -> String {
    let named: Vec<String> = ids.iter().take(MAX_NAMED).map(|id| format!("`{id}`")).collect();
    match ids.len().saturating_sub(MAX_NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(yaml: &str) -> Vec<String> {
        let rules = RuleSet::from_yaml(yaml, "rules.yaml").unwrap_or_else(|error| panic!("{error}"));
        hints(&rules)
    }

    const LIMIT: &str = "strategy: {fixed_window: {limit: 1, window: 1h}}";

    #[test]
    fn attributes_that_front_ends_set_need_no_hint() {
        let rules = format!(
            "rules: [{{id: a, scope: ip, {LIMIT}}}, {{id: b, scope: user, key_pattern: '{{host}} {{method}}', {LIMIT}}}]"
        );
        assert_eq!(of(&rules), Vec::<String>::new());
    }

    #[test]
    fn other_attributes_get_a_hint_with_the_consequence() {
        let rule = |id: &str, rest: &str| format!("  - {{id: {id}, scope: user, {rest} {LIMIT}}}\n");
        let rules = ["a", "b", "c", "d", "e", "f"].map(|id| rule(id, "")).concat();
        let others = [
            ("deny", "if_missing: deny,"),
            ("fail", "if_missing: error,"),
            ("log", "action: log_only, if_missing: deny,"),
        ];
        let others = others.map(|(id, rest)| rule(id, rest)).concat();
        let messages = of(&format!("rules:\n{rules}{others}{}", rule("plans", "plan_tiers: [free],")));
        assert_eq!(messages.len(), 2, "{messages:#?}");
        for part in ["`user`", "denied by `deny`", "refused by `fail`", "only recorded by `log`"] {
            assert!(messages[0].contains(part), "{part}: {}", messages[0]);
        }
        assert!(
            messages[0].contains("not limited by `a`, `b`, `c`, `d`, `e` and 2 more (set `if_missing"),
            "{}",
            messages[0]
        );
        assert!(
            messages[1].contains("`plan`") && messages[1].contains("not limited by `plans`"),
            "{}",
            messages[1]
        );
    }

    #[test]
    fn rules_that_only_reservations_obey_get_a_hint() {
        let in_flight = "scope: ip, strategy: {concurrency: {limit: 20, hold: 60s}}";
        let messages = of(&format!(
            "rules: [{{id: a, {in_flight}}}, {{id: b, {in_flight}}}, {{id: c, enabled: false, {in_flight}}}]"
        ));
        assert_eq!(
            messages,
            ["only reservations hold units; checks and forward-auth are not limited by `a`, `b`"]
        );
    }

    #[test]
    fn more_rules_than_can_apply_get_a_hint() {
        let rule = |number: usize| format!("  - {{id: r{number}, scope: global, {LIMIT}}}\n");
        let rules = |count| of(&format!("rules:\n{}", (0..count).map(rule).collect::<String>()));
        assert_eq!(rules(64), Vec::<String>::new());
        assert!(rules(65)[0].contains("up to 65 rules can apply to one attribute set"), "{:?}", rules(65));
    }

    #[test]
    fn overrides_that_never_apply_get_a_hint() {
        let messages = of(&format!(
            "
rules: [{{id: each, scope: endpoint, endpoints: [/api/**], {LIMIT}}}]
overrides:
  - {{rule: each, key: {{endpoint: /api/**/}}, verdict: block}}
  - {{rule: each, key: {{endpoint: /api/admin}}, verdict: block}}
"
        ));
        assert_eq!(messages.len(), 1, "{messages:#?}");
        assert!(messages[0].contains("`each` for endpoint \"/api/admin\" never applies"), "{}", messages[0]);
    }
}
