//! The names of counters, read back.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::counter::{self, Value};
use super::endpoint::{Path, encoded};
use super::set::{ENDPOINT, RuleSet};

/// Whose counter it is: what a counter's name says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyValues {
    /// The id of its rule.
    pub rule: String,
    /// The values of the rule's placeholders, as an [`Override`](super::Override) has them. An address is the network that it
    /// counts as, and a path is written in the usual way.
    pub values: BTreeMap<String, String>,
}

impl RuleSet {
    /// Reads the name of a counter, as [`RuleDecision::key`](super::RuleDecision::key) tells it. `None` if no rule has such
    /// counters, and for long values, of which the name has only a digest.
    ///
    /// ```
    /// use trypema::rules::RuleSet;
    ///
    /// let rules = RuleSet::from_yaml(
    ///     "rules: [{id: per-user, scope: user, strategy: {fixed_window: {limit: 5, window: 1h}}}]",
    ///     "rules.yaml",
    /// )?;
    /// let key = rules.values_of("per-user|user=ann:1").expect("it is a counter of the rule");
    /// assert_eq!((key.rule.as_str(), key.values["user"].as_str()), ("per-user", "ann:1"));
    /// assert_eq!(rules.values_of("per-user|login=ann"), None);
    /// # Ok::<(), trypema::rules::InvalidRules>(())
    /// ```
    pub fn values_of(&self, key: &str) -> Option<KeyValues> {
        let mut parts = key.split('|');
        let rule = self.compiled(parts.next()?)?;
        if !rule.has_counter(key) {
            return None;
        }
        let read = |part: &str| {
            let (name, value) = part.split_once('=')?;
            Some((name.to_owned(), counter::unescape(value)?))
        };
        let mut values: BTreeMap<String, String> = parts.map(read).collect::<Option<_>>()?;
        // Nothing is written in two ways, so what is not written like this is no counter's name.
        let mut written = String::new();
        let texts = values.iter().map(|(name, value)| (name.as_str(), Value::Text(value)));
        counter::write(&mut written, &rule.rule.id, texts);
        if written != key {
            return None;
        }
        if let Some(endpoint) = values.get_mut(ENDPOINT) {
            // A name has a path decoded: a question mark is a part of it.
            let encoded = encoded(endpoint);
            let path = Path::new(&encoded);
            *endpoint = rule.endpoint_like(&path).map_or_else(|| path.respelled(), ToOwned::to_owned);
        }
        Some(KeyValues { rule: rule.rule.id.clone(), values })
    }

    /// The name of the counter of a rule's key, given a value for each of its placeholders: an address and a path count
    /// under the same name however they are written. `None` if there is no such rule, or it has other placeholders.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use trypema::rules::RuleSet;
    ///
    /// let rules = RuleSet::from_yaml(
    ///     "rules: [{id: each, scope: endpoint, strategy: {fixed_window: {limit: 5, window: 1h}}}]",
    ///     "rules.yaml",
    /// )?;
    /// let admin = BTreeMap::from([("endpoint".to_owned(), "/admin/".to_owned())]);
    /// assert_eq!(rules.key_of("each", &admin).as_deref(), Some("each|endpoint=/admin"));
    /// # Ok::<(), trypema::rules::InvalidRules>(())
    /// ```
    pub fn key_of(&self, rule: &str, values: &BTreeMap<String, String>) -> Option<String> {
        let rule = self.compiled(rule)?;
        let names = rule.placeholders.iter().map(|placeholder| &*placeholder.name);
        names.eq(values.keys().map(String::as_str)).then(|| rule.counter_of(values))
    }

    /// The name that a counter has if requests are counted by it, given a name that an operator may have written another
    /// way; the same name if its values are not known.
    pub(super) fn usual_name<'k>(&self, key: &'k str) -> Cow<'k, str> {
        let usual = self.values_of(key).and_then(|key| self.key_of(&key.rule, &key.values));
        usual.map_or(Cow::Borrowed(key), Cow::Owned)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules() -> RuleSet {
        let yaml = "
rules:
  - {id: two, scope: user, key_pattern: '{user} at {place}', strategy: {fixed_window: {limit: 5, window: 1h}}}
  - {id: all, scope: global, strategy: {fixed_window: {limit: 5, window: 1h}}}
";
        RuleSet::from_yaml(yaml, "rules.yaml").unwrap()
    }

    #[test]
    fn what_no_rule_counts_under_is_not_read() {
        let rules = rules();
        for wrong in [
            "",
            "other",
            "all|",
            "all|user=ann",
            "two",
            "two|place=a",
            "two|user=a|place=b",
            "two|place=a|user=b|user=c",
            "two|place=a|user=b\nc",
            "two|place=a|user=~",
            "two|place=a|user=~3",
            "two|place=a|user=~3A",
            "two|place=a|user=~zz",
            "two|place=a|user=~é",
            "two|place=a|user=~61",
            "two|~~0123456789abcdef0123456789abcdef01234567",
        ] {
            assert_eq!(rules.values_of(wrong), None, "{wrong}");
        }
        assert_eq!(rules.values_of("all").unwrap().values, BTreeMap::new());
        assert_eq!(rules.values_of("two|place=a|user=b:c").unwrap().values["user"], "b:c");
        let long = format!("two|place={}|user=b", "a".repeat(300));
        assert_eq!(rules.values_of(&long), None, "such a name is a digest");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(place in any_value(), user in any_value()) {
            let values = BTreeMap::from([("place".to_owned(), place), ("user".to_owned(), user)]);
            let mut name = String::new();
            counter::write(&mut name, "two", values.iter().map(|(name, value)| (name.as_str(), Value::Text(value))));
            let is_digest = name.starts_with("two|~~");
            let expected = KeyValues { rule: "two".to_owned(), values };
            prop_assert_eq!(rules().values_of(&name), (!is_digest).then_some(expected));
        }
    }

    fn any_value() -> impl Strategy<Value = String> {
        prop_oneof!["[ab|=~_:{}%/\r\n0-9]{0,8}", any::<String>(), "[ab:]{80,130}", Just("~7c".to_owned())]
    }
}
