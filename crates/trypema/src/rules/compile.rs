//! The rule compiler: validates rules and builds a [`RuleSet`].
//!
//! The compiler checks everything that the types in `definition.rs` cannot express. It is the same for rules
//! from a file and rules from a database.

mod candidates;
mod overrides;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::address::CanonicalNetwork;
use super::condition::{CompiledCondition, Condition};
use super::definition::{Action, IfMissing, KeyVerdict, Rule, Rules, Scope};
use super::endpoint::{EndpointPattern, canonical, upper_case_method};
use super::index::{ConditionKey, IndexProperties, Map};
use super::pattern::{placeholders, problem_with_name};
use super::period::Period;
use super::problem::{FieldPath, InvalidRules, Problems, RuleProblem};
use super::request::{MAX_ATTRIBUTES, REQUESTS};
use super::set::{CompiledRule, List, Lists, METHOD, Placeholder, RuleSet, Values};

/// The longest rule id, in bytes. Ids are part of every counter name and of response headers.
pub(super) const MAX_ID_BYTES: usize = 64;

/// The longest name, plan or key pattern, in characters. The table `rate_limit_rules` has the same limit.
const MAX_TEXT_CHARS: usize = 255;

/// The most units besides `requests`: a request names each of its costs.
const MAX_UNITS: usize = 15;

/// The longest `max_delay`. A throttled client waits this long, possibly with its connection open.
const MAX_DELAY: Duration = Duration::from_secs(3_600);

/// The most rules in a set: more than a service needs, and few enough that a set fits into memory.
const MAX_RULES: usize = 1_000_000;

pub(super) fn compile(written: &Rules) -> Result<RuleSet, InvalidRules> {
    let (set, problems) = compile_partly(written, &[]);
    problems.or(set)
}

/// Compiles rules that contain placeholders, to find the problems of everything else. `replaced` are the
/// fields with placeholders.
pub(super) fn compile_partly(written: &Rules, replaced: &[&FieldPath]) -> (RuleSet, Problems) {
    let mut compiler = Compiler { replaced, ..Compiler::default() };
    let set = compiler.set(written);
    (set, compiler.problems)
}

/// Compiles rules and collects their problems. It continues after a problem, so that one run reports all of
/// them.
#[derive(Default)]
pub(super) struct Compiler<'r> {
    pub(super) problems: Problems,
    attributes: Map<Box<str>, u16>,
    /// The declared units.
    units: Vec<Box<str>>,
    /// The fields that could not be read and have placeholders. Their problems are known already.
    replaced: &'r [&'r FieldPath],
}

impl Compiler<'_> {
    fn set(&mut self, written: &Rules) -> RuleSet {
        let all = FieldPath::of("rules");
        if written.rules.len() > MAX_RULES {
            self.refuse(&all, format!("{} rules: at most {MAX_RULES} are allowed", written.rules.len()));
            return RuleSet::default();
        }
        self.units(&written.units);
        let mut rules: Vec<CompiledRule> = written
            .rules
            .iter()
            .enumerate()
            .filter_map(|(index, rule)| {
                let (field, known) = (all.at(index), self.problems.listed().len());
                let compiled = self.rule(rule, &field);
                self.name_rule(known, &rule.id);
                // Its overrides cannot be checked if a part of the rule is unknown.
                compiled.filter(|_| !self.has_replaced(&field))
            })
            .collect();
        self.refuse_repeated_ids(&written.rules, &all);
        self.check_candidates(&written.rules, &all);
        self.overrides(&mut rules, written);
        let lists = Lists {
            allow: self.list(&written.allow, KeyVerdict::Allow),
            block: self.list(&written.block, KeyVerdict::Block),
        };
        rules.sort_by(|one, other| {
            (one.rule.priority, &one.rule.id).cmp(&(other.rule.priority, &other.rule.id))
        });
        let attributes = std::mem::take(&mut self.attributes);
        let mut names: Vec<(u16, Box<str>)> =
            attributes.iter().map(|(name, number)| (*number, name.clone())).collect();
        names.sort_unstable();
        let attribute_names = names.into_iter().map(|(_, name)| name).collect();
        let units = std::mem::take(&mut self.units);
        let mut set = RuleSet { rules, attributes, attribute_names, units, lists, ..RuleSet::default() };
        set.file_all();
        set.link_candidates();
        set
    }

    fn rule(&mut self, rule: &Rule, field: &FieldPath) -> Option<CompiledRule> {
        self.check_texts(rule, field);
        let placeholders = self.placeholders(rule, field);
        let endpoints = self.endpoints(rule, field);
        let conditions = self.conditions(rule, placeholders.as_deref(), field);
        self.check_unit(rule, field);
        self.check_delay(rule, field);
        let limit = rule.strategy.compile(self, &field.then("strategy"));
        Some(CompiledRule {
            rule: rule.clone(),
            limit: limit?,
            endpoints,
            conditions,
            placeholders: placeholders?,
            overrides_by_key: Map::default(),
            overrides_of_long_keys: Vec::new(),
            hashed: None,
            live: None,
            shadow_denials: AtomicU64::new(0),
        })
    }

    fn check_texts(&mut self, rule: &Rule, field: &FieldPath) {
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if rule.id.is_empty() || rule.id.len() > MAX_ID_BYTES || !rule.id.bytes().all(is_fine) {
            let given: String = rule.id.chars().take(MAX_ID_BYTES).collect();
            let allowed = format!("need 1 to {MAX_ID_BYTES} letters, digits, `_`, `-` and `.`");
            self.refuse(&field.then("id"), format!("invalid id {given:?}: {allowed}"));
        }
        let name = rule.name.iter().map(|name| (field.then("name"), name));
        let plans = rule.plan_tiers.iter().enumerate();
        let plans = plans.map(|(index, plan)| (field.then("plan_tiers").at(index), plan));
        for (field, text) in name.chain(plans).collect::<Vec<_>>() {
            if text.is_empty() || text.chars().count() > MAX_TEXT_CHARS || text.contains(char::is_control) {
                let allowed =
                    format!("need 1 to {MAX_TEXT_CHARS} characters, none of them a control character");
                let given: String = text.chars().take(MAX_ID_BYTES).collect();
                self.refuse(&field, format!("invalid text {given:?}: {allowed}"));
            }
        }
    }

    fn placeholders(&mut self, rule: &Rule, field: &FieldPath) -> Option<Vec<Placeholder>> {
        let of_scope = match rule.scope {
            Scope::Global => "",
            Scope::Tenant => "{tenant}",
            Scope::User => "{user}",
            Scope::Ip => "{ip}",
            Scope::Endpoint => "{endpoint}",
        };
        let pattern = rule.key_pattern.as_deref().unwrap_or(of_scope);
        let (around, field) = (field, field.then("key_pattern"));
        if pattern.chars().count() > MAX_TEXT_CHARS {
            self.refuse(&field, format!("pattern of more than {MAX_TEXT_CHARS} characters"));
            return None;
        }
        let mut names = match placeholders(pattern) {
            Ok(names) => names,
            Err(reason) => {
                self.refuse(&field, reason);
                return None;
            }
        };
        match rule.scope {
            _ if self.is_replaced(&around.then("scope")) => {}
            Scope::Global if !names.is_empty() => {
                self.refuse(&field, "scope global is one counter for all, but the pattern has a placeholder");
            }
            Scope::Tenant | Scope::User | Scope::Ip if names.is_empty() => {
                let reason =
                    "the pattern has no placeholder: all callers would share one counter (scope global)";
                self.refuse(&field, reason);
            }
            _ => {}
        }
        names.sort_unstable();
        names.into_iter().map(|name| self.placeholder(name, &field)).collect()
    }

    fn placeholder(&mut self, name: &str, field: &FieldPath) -> Option<Placeholder> {
        Some(Placeholder { name: name.into(), attribute: self.attribute(name, field)? })
    }

    /// Returns the number of an attribute, assigning the next free one if the name is new.
    fn attribute(&mut self, name: &str, field: &FieldPath) -> Option<u16> {
        if let Some(number) = self.attributes.get(name) {
            return Some(*number);
        }
        let Ok(number) = u16::try_from(self.attributes.len()) else {
            self.refuse(field, format!("rules and lists use more than {} attributes", u16::MAX));
            return None;
        };
        self.attributes.insert(name.into(), number);
        Some(number)
    }

    fn endpoints(&mut self, rule: &Rule, field: &FieldPath) -> Vec<EndpointPattern> {
        let field = field.then("endpoints");
        let mut endpoints = Vec::with_capacity(rule.endpoints.len());
        for (index, text) in rule.endpoints.iter().enumerate() {
            match EndpointPattern::parse(text) {
                Ok(endpoint) => endpoints.push(endpoint),
                Err(reason) => self.refuse(&field.at(index), reason),
            }
        }
        endpoints
    }

    fn conditions(
        &mut self,
        rule: &Rule,
        placeholders: Option<&[Placeholder]>,
        field: &FieldPath,
    ) -> Vec<CompiledCondition> {
        let field = field.then("when");
        if rule.when.len() > MAX_ATTRIBUTES {
            let count = rule.when.len();
            self.refuse(
                &field,
                format!("{count} conditions: a request has at most {MAX_ATTRIBUTES} attributes"),
            );
            return Vec::new();
        }
        let is_in_key =
            |name: &str| placeholders.is_some_and(|known| known.iter().any(|known| *known.name == *name));
        let mut conditions = Vec::with_capacity(rule.when.len());
        for (name, condition) in &rule.when {
            let field = field.then(name);
            if let Some(reason) = problem_with_name(name) {
                self.refuse(&field, format!("attribute {name:?} {reason}"));
            } else if let Some(problem) = condition.problem(name, is_in_key(name)) {
                let at = problem.value.map_or_else(
                    || field.clone(),
                    |index| match condition {
                        Condition::NoneOf(_) => field.then("not").at(index),
                        _ => field.at(index),
                    },
                );
                self.refuse(&at, problem.reason);
            } else if let Some(attribute) = self.attribute(name, &field) {
                conditions.push(CompiledCondition::new(attribute, condition));
            }
        }
        conditions
    }

    /// Reads the declared units.
    fn units(&mut self, written: &[String]) {
        let field = FieldPath::of("units");
        if written.len() > MAX_UNITS {
            self.refuse(&field, format!("{} units: at most {MAX_UNITS} are allowed", written.len()));
        }
        for (index, name) in written.iter().enumerate() {
            let given: String = name.chars().take(MAX_ID_BYTES).collect();
            if name == REQUESTS {
                self.refuse(&field.at(index), "`requests` always exists: leave it out");
            } else if let Some(reason) = problem_with_name(name) {
                self.refuse(&field.at(index), format!("unit {given:?} {reason}"));
            } else if self.units.iter().any(|known| **known == **name) {
                self.refuse(&field.at(index), format!("unit {given:?} is declared twice"));
            } else {
                self.units.push(name.as_str().into());
            }
        }
    }

    fn check_unit(&mut self, rule: &Rule, field: &FieldPath) {
        let unit = rule.unit_name();
        let is_known = unit == REQUESTS || self.units.iter().any(|known| **known == *unit);
        if !is_known
            && !self.has_replaced(&FieldPath::of("units"))
            && !self.is_replaced(&FieldPath::of("units"))
        {
            let given: String = unit.chars().take(MAX_ID_BYTES).collect();
            let declared = self.units.iter().map(|unit| &**unit);
            let declared = std::iter::once(REQUESTS).chain(declared).collect::<Vec<_>>().join(", ");
            self.refuse(
                &field.then("unit"),
                format!("unit {given:?} is not declared: add it to `units`, or use one of {declared}"),
            );
        }
        if let Some(reason) = rule.strategy.against_postpaid().filter(|_| rule.postpaid) {
            self.refuse(&field.then("postpaid"), reason);
        }
    }

    fn check_delay(&mut self, rule: &Rule, field: &FieldPath) {
        let (action, field) = (field.then("action"), field.then("max_delay"));
        match (rule.action, rule.max_delay) {
            (Action::Throttle, Some(delay)) if delay.0.is_zero() => {
                self.refuse(&field, "`max_delay: 0s` rejects every request: use `action: reject`");
            }
            (Action::Throttle, Some(delay)) if delay.0 > MAX_DELAY => {
                self.refuse(&field, format!("a delay of {delay}: need at most {}", Period(MAX_DELAY)));
            }
            (Action::Reject | Action::LogOnly, Some(_)) if !self.is_replaced(&action) => {
                self.refuse(&field, "only action throttle has a delay");
            }
            _ => {}
        }
    }

    fn refuse_repeated_ids(&mut self, rules: &[Rule], field: &FieldPath) {
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        let is_known = |index| !self.is_replaced(&field.at(index).then("id"));
        let known: Vec<_> = rules.iter().enumerate().filter(|(index, _)| is_known(*index)).collect();
        for (index, rule) in known {
            match seen.get(rule.id.as_str()) {
                Some(first) => {
                    let known = self.problems.listed().len();
                    let reason = format!("duplicate id: rules[{first}] has the same id");
                    self.refuse(&field.at(index).then("id"), reason);
                    self.name_rule(known, &rule.id);
                }
                None => {
                    seen.insert(&rule.id, index);
                }
            }
        }
    }

    fn list(&mut self, written: &BTreeMap<String, Vec<String>>, verdict: KeyVerdict) -> Vec<List> {
        let all = FieldPath::of(match verdict {
            KeyVerdict::Allow => "allow",
            KeyVerdict::Block => "block",
        });
        let mut lists = Vec::new();
        for (name, values) in written {
            let field = all.then(name);
            if let Some(reason) = problem_with_name(name) {
                self.refuse(&field, format!("attribute {name:?} {reason}"));
            } else if let Some(attribute) = self.attribute(name, &field) {
                let values = match verdict {
                    KeyVerdict::Block if name == METHOD => Values::of_blocked_methods(values),
                    _ => self.values(name, values, &field),
                };
                lists.push(List { attribute, values });
            }
        }
        lists
    }

    fn values(&mut self, name: &str, values: &[String], field: &FieldPath) -> Values {
        match name {
            "ip" => {
                let network = |(index, value): (usize, &String)| {
                    let network = CanonicalNetwork::parse(value);
                    if network.is_none() {
                        let given: String = value.chars().take(MAX_ID_BYTES).collect();
                        self.refuse(
                            &field.at(index),
                            format!("{given:?} is neither an address nor a network"),
                        );
                    }
                    network
                };
                Values::Networks(values.iter().enumerate().filter_map(network).collect())
            }
            "endpoint" => {
                let path = |value: &String| (canonical(value).into(), ());
                Values::Paths(values.iter().map(path).collect())
            }
            _ => Values::Texts(values.iter().map(|value| (value.as_str().into(), ())).collect()),
        }
    }

    pub(super) fn refuse(&mut self, field: &FieldPath, reason: impl Into<String>) {
        if !self.is_replaced(field) && !self.has_replaced(field) {
            self.problems.push(RuleProblem::new(field.clone(), reason));
        }
    }

    /// Whether a field, or a field that contains it, has a placeholder.
    fn is_replaced(&self, field: &FieldPath) -> bool {
        self.replaced.iter().any(|replaced| field.is_within(replaced))
    }

    /// Whether a field contains a placeholder.
    pub(super) fn has_replaced(&self, field: &FieldPath) -> bool {
        self.replaced.iter().any(|replaced| replaced.is_within(field))
    }

    /// Whether the ids of all rules could be read. Only then is it certain that a rule does not exist.
    fn are_ids_known(&self, rules: &[Rule], all: &FieldPath) -> bool {
        self.replaced.is_empty()
            || (!self.is_replaced(all)
                && (0..rules.len()).all(|index| !self.is_replaced(&all.at(index).then("id"))))
    }

    /// Sets the rule id of every problem from index `first` on.
    fn name_rule(&mut self, first: usize, id: &str) {
        let id: String = id.chars().take(MAX_ID_BYTES).collect();
        self.problems.listed_mut().iter_mut().skip(first).for_each(|problem| problem.rule = Some(id.clone()));
    }
}

impl Values {
    fn of_blocked_methods(values: &[String]) -> Self {
        let method = |value: &String| (upper_case_method(value).into(), ());
        Self::MethodsInAnyCase(values.iter().map(method).collect())
    }
}

impl RuleSet {
    /// Adds every enabled rule to its index: candidates to `candidate_index`, all others to `index`.
    fn file_all(&mut self) {
        let mut askers: Map<u16, u32> = Map::default();
        for placeholder in self.rules.iter().flat_map(|rule| &rule.placeholders) {
            *askers.entry(placeholder.attribute).or_default() += 1;
        }
        self.ids =
            (0..).zip(&self.rules).map(|(number, rule)| (rule.rule.id.as_str().into(), number)).collect();
        let mut condition_uses: Map<(u16, ConditionKey<'_>), u32> = Map::default();
        for condition in self.rules.iter().flat_map(|rule| &rule.conditions) {
            for key in condition.keys() {
                *condition_uses.entry((condition.attribute, key)).or_default() += 1;
            }
        }
        // The condition whose values the fewest rules share excludes the most rules.
        let main_condition = |conditions: &[CompiledCondition]| {
            let most_uses = conditions.iter().enumerate().filter_map(|(index, condition)| {
                let uses = condition.keys().filter_map(|key| condition_uses.get(&(condition.attribute, key)));
                Some((uses.max()?, index))
            });
            most_uses.min().map(|(_, index)| index)
        };
        for (number, rule) in self.rules.iter().enumerate().filter(|(_, rule)| rule.rule.enabled) {
            let is_skipped = rule.rule.if_missing == IfMissing::Skip;
            let attributes = rule.placeholders.iter().filter(|_| is_skipped);
            let mut attributes: Vec<u16> = attributes.map(|placeholder| placeholder.attribute).collect();
            attributes.sort_by_key(|attribute| (askers.get(attribute), *attribute));
            let (endpoints, plans) = (&rule.endpoints, &rule.rule.plan_tiers);
            let is_candidate = rule.rule.candidate_for.is_some();
            let index = if is_candidate { &mut self.candidate_index } else { &mut self.index };
            let conditions = &rule.conditions;
            let main = main_condition(conditions);
            let main_condition = main.and_then(|index| conditions.get(index));
            // A condition that the index answers by itself need not be tested again.
            let is_answered = |index: usize| {
                Some(index) == main && main_condition.is_some_and(CompiledCondition::is_certain)
            };
            let tested = conditions.iter().enumerate().filter(|(index, _)| !is_answered(*index));
            let tested_conditions: &Arc<[CompiledCondition]> =
                &tested.map(|(_, condition)| condition.clone()).collect();
            let attributes = &attributes;
            index.file(
                number as u32,
                &IndexProperties { endpoints, plans, attributes, main_condition, tested_conditions },
            );
        }
        let rules = &self.rules;
        let counts_by_endpoint =
            |rule: u32| rules.get(rule as usize).is_some_and(CompiledRule::counts_by_endpoint);
        self.applying_upper_bound = self.index.applying_upper_bound(&counts_by_endpoint);
    }
}
