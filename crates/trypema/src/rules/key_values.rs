//! The names of counters, read back.

use std::collections::BTreeMap;

use super::counter::{self, Value};
use super::set::RuleSet;

/// Whose counter it is: what a counter's name says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyValues {
    /// The id of its rule.
    pub rule: String,
    /// The values of the rule's placeholders, as an [`Override`](super::Override) has them. An address is the network that it
    /// counts as.
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
    /// let key = rules.values_of("per-user|user=ann~3a1").expect("it is a counter of the rule");
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
        let values: BTreeMap<String, String> = parts.map(read).collect::<Option<_>>()?;
        // Nothing is written in two ways, so what is not written like this is no counter's name.
        let mut written = String::new();
        let texts = values.iter().map(|(name, value)| (name.as_str(), Value::Text(value)));
        counter::write(&mut written, &rule.rule.id, texts);
        (written == key).then(|| KeyValues { rule: rule.rule.id.clone(), values })
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
            "two|place=a|user=b:c",
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
