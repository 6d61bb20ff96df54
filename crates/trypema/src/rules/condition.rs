//! Conditions: values of attributes that a rule applies to.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::request::IndexedSet;

/// A condition on one attribute of a request.
///
/// In YAML and JSON, it is a list of values, `{not: [...]}` or `absent`. A `*` in a value stands for any text.
///
/// ```
/// use trypema::rules::Condition;
///
/// let condition: Condition = serde_json::from_str(r#"{"not": ["eu-*"]}"#)?;
/// assert_eq!(condition, Condition::NoneOf(vec!["eu-*".to_owned()]));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// The attribute has one of these values.
    OneOf(Vec<String>),
    /// The attribute has none of these values. It may be absent.
    NoneOf(Vec<String>),
    /// The request does not have the attribute.
    Absent,
}

const EXPECTED: &str = "a list of values, `{not: [...]}`, or `absent`";

/// The name of [`Condition::Absent`].
const ABSENT: &str = "absent";

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::OneOf(values) => values.serialize(serializer),
            Self::NoneOf(values) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("not", values)?;
                map.end()
            }
            Self::Absent => serializer.serialize_str(ABSENT),
        }
    }
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ConditionVisitor)
    }
}

struct ConditionVisitor;

/// The values in `{not: [...]}`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Negation {
    not: Vec<String>,
}

impl<'de> Visitor<'de> for ConditionVisitor {
    type Value = Condition;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Condition, E> {
        if text == ABSENT {
            return Ok(Condition::Absent);
        }
        let given: String = text.chars().take(MAX_VALUE_CHARS).collect();
        Err(E::custom(format_args!("need {EXPECTED}; for one value, write [{given:?}]")))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Condition, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(Condition::OneOf(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Condition, A::Error> {
        Negation::deserialize(MapAccessDeserializer::new(map)).map(|negation| Condition::NoneOf(negation.not))
    }
}

impl JsonSchema for Condition {
    fn schema_name() -> Cow<'static, str> {
        "Condition".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let values = json_schema!({
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": MAX_VALUE_CHARS},
            "minItems": 1,
            "maxItems": MAX_VALUES,
        });
        json_schema!({
            "description": "A list of values, `{not: [...]}` or `absent`. A `*` in a value stands for any text.",
            "oneOf": [
                values,
                {
                    "type": "object",
                    "properties": {"not": values},
                    "required": ["not"],
                    "additionalProperties": false,
                },
                {"const": ABSENT},
            ],
        })
    }
}

/// The longest value in a condition, in characters.
const MAX_VALUE_CHARS: usize = 255;

/// The most values in one condition. They are compared one after the other.
const MAX_VALUES: usize = 256;

/// The attributes that a condition cannot be about, and the field that selects them.
const OTHER_FIELDS: [(&str, &str); 4] = [
    ("endpoint", "`endpoints` selects paths"),
    ("method", "`endpoints` selects methods, as in `POST /**`"),
    ("plan", "`plan_tiers` selects plans"),
    ("ip", "conditions compare text, but an address has many spellings; use an allow or block list"),
];

/// A problem of a condition.
#[derive(Debug)]
pub(super) struct ConditionProblem {
    /// The index of the value that causes it; `None` if the whole condition does.
    pub(super) value: Option<usize>,
    pub(super) reason: String,
}

impl Condition {
    /// Returns the problem of a condition on an attribute, if there is one. `is_in_key` says whether the
    /// attribute is part of the rule's key.
    pub(super) fn problem(&self, attribute: &str, is_in_key: bool) -> Option<ConditionProblem> {
        let of_all = |reason: String| Some(ConditionProblem { value: None, reason });
        let of_value = |index: usize, reason: String| Some(ConditionProblem { value: Some(index), reason });
        if let Some((_, reason)) = OTHER_FIELDS.iter().find(|(name, _)| *name == attribute) {
            return of_all(format!("a rule cannot have a condition on {attribute:?}: {reason}"));
        }
        let values = match self {
            Self::Absent if is_in_key => {
                return of_all(format!("this can never hold: the rule's key needs {attribute:?}"));
            }
            Self::Absent => return None,
            Self::OneOf(values) | Self::NoneOf(values) => values,
        };
        match (values.len(), self) {
            (0, Self::NoneOf(_)) => return of_all("this always holds: need at least one value".to_owned()),
            (0, _) => return of_all("this can never hold: need at least one value".to_owned()),
            (1..=MAX_VALUES, _) => {}
            (count, _) => return of_all(format!("{count} values: at most {MAX_VALUES} are allowed")),
        }
        if matches!(self, Self::NoneOf(_))
            && let Some(index) = values.iter().position(|value| is_any(value))
        {
            let reason = if is_in_key {
                format!("this can never hold: the rule's key needs {attribute:?}")
            } else {
                "this holds only if the attribute is absent: write `absent`".to_owned()
            };
            return of_value(index, reason);
        }
        let is_bad = |value: &String| {
            value.is_empty() || value.chars().count() > MAX_VALUE_CHARS || value.contains(char::is_control)
        };
        let index = values.iter().position(is_bad)?;
        let allowed = format!("need 1 to {MAX_VALUE_CHARS} characters, none of them a control character");
        of_value(index, allowed)
    }
}

/// Whether a value stands for any text.
fn is_any(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|byte| byte == b'*')
}

/// A text in which `*` stands for any text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TextPattern(Box<str>);

impl TextPattern {
    fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// Whether the pattern contains no `*`.
    pub(super) fn is_exact(&self) -> bool {
        !self.0.contains('*')
    }

    /// Returns the text before the first `*`.
    pub(super) fn prefix(&self) -> &str {
        self.0.split('*').next().unwrap_or_default()
    }

    /// Returns the text after the last `*`.
    pub(super) fn suffix(&self) -> &str {
        self.0.rsplit('*').next().unwrap_or_default()
    }

    /// Takes time in proportion to the product of both lengths, which are bounded.
    fn matches(&self, value: &str) -> bool {
        let Some((prefix, rest)) = self.0.split_once('*') else { return *self.0 == *value };
        let (inner, suffix) = rest.rsplit_once('*').unwrap_or(("", rest));
        let Some(value) = value.strip_prefix(prefix).and_then(|value| value.strip_suffix(suffix)) else {
            return false;
        };
        // The earliest match of each part leaves the most room for the parts after it.
        let parts = inner.split('*').filter(|part| !part.is_empty());
        let after = |value: &'_ str, part: &str| value.find(part).map(|at| at + part.len());
        let mut left = value;
        for part in parts {
            match after(left, part) {
                Some(end) => left = &left[end..],
                None => return false,
            }
        }
        true
    }
}

/// A condition that a rule set looks up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CompiledCondition {
    pub(super) attribute: u16,
    pub(super) test: Test,
}

/// A compiled [`Condition`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Test {
    OneOf(Box<[TextPattern]>),
    NoneOf(Box<[TextPattern]>),
    Absent,
}

impl CompiledCondition {
    pub(super) fn new(attribute: u16, condition: &Condition) -> Self {
        let patterns = |values: &[String]| values.iter().map(|value| TextPattern::new(value)).collect();
        let test = match condition {
            Condition::OneOf(values) => Test::OneOf(patterns(values)),
            Condition::NoneOf(values) => Test::NoneOf(patterns(values)),
            Condition::Absent => Test::Absent,
        };
        Self { attribute, test }
    }

    /// Whether the condition holds for an attribute set.
    pub(super) fn holds(&self, indexed: &IndexedSet<'_>) -> bool {
        let value = indexed.value(self.attribute);
        let is_among = |patterns: &[TextPattern]| {
            value.is_some_and(|value| patterns.iter().any(|pattern| pattern.matches(value)))
        };
        match &self.test {
            Test::OneOf(patterns) => is_among(patterns),
            Test::NoneOf(patterns) => !is_among(patterns),
            Test::Absent => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, value: &str) -> bool {
        TextPattern::new(pattern).matches(value)
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, value) in [
            ("gpt-5", "gpt-5"),
            ("claude-*", "claude-"),
            ("claude-*", "claude-opus"),
            ("*-mini", "gpt-5-mini"),
            ("a*b*c", "a-b-b-c"),
            ("*é*", "café"),
            ("*", ""),
            ("**", "x"),
            ("*ab*ab*", "abab"),
        ] {
            assert!(matches(pattern, value), "{pattern} {value}");
        }
        for (pattern, value) in [
            ("gpt-5", "gpt-50"),
            ("claude-*", "Claude-3"),
            ("*-mini", "mini"),
            ("aa*aa", "aaa"),
            ("a*b*c", "acb"),
            ("*ab*ab*", "aba"),
            ("", "x"),
        ] {
            assert!(!matches(pattern, value), "{pattern} {value}");
        }
    }

    /// The definition: a `*` matches nothing, or one character and then the same again.
    fn is_match(pattern: &[char], value: &[char]) -> bool {
        match pattern.split_first() {
            None => value.is_empty(),
            Some(('*', rest)) => (0..=value.len()).any(|at| is_match(rest, &value[at..])),
            Some((first, rest)) => {
                value.split_first().is_some_and(|(one, more)| one == first && is_match(rest, more))
            }
        }
    }

    proptest! {
        #[test]
        fn patterns_match_by_definition(pattern in "[abé*]{0,7}", value in "[abé]{0,8}") {
            let of = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(matches(&pattern, &value), is_match(&of(&pattern), &of(&value)));
        }
    }
}
