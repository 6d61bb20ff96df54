//! Parses counter names.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::counter::{self, PlaceholderValue};
use super::endpoint::{canonical, encode, normalize_path};
use super::set::{ENDPOINT, RuleSet};

/// The contents of a counter name: the rule and the values of its placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyValues {
    /// The id of the rule.
    pub rule: String,
    /// The values of the rule's placeholders, in the form that an [`Override`](super::Override) uses. An IPv6
    /// address is its /64 network, and a path is in normal form.
    pub values: BTreeMap<String, String>,
}

impl RuleSet {
    /// Parses a counter name, as found in [`RuleDecision::key`](super::RuleDecision::key). Returns `None` if
    /// the name belongs to no rule, if the values were so long that the name contains only their digest, or if the
    /// path is one that no override can name: a reading with dot segments or encoded slashes, which requests
    /// have beside another one.
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
        // Names are canonical: if these values would be written differently, `key` is not a counter name.
        let mut written = String::new();
        let texts = values.iter().map(|(name, value)| (name.as_str(), PlaceholderValue::Text(value)));
        counter::write(&mut written, &rule.rule.id, texts);
        if written != key {
            return None;
        }
        if let Some(endpoint) = values.get_mut(ENDPOINT) {
            // Paths are stored decoded: encode a `?` or `#`, so that it does not end the path.
            let encoded = encode(endpoint);
            let path = canonical(&encoded);
            let own = rule.endpoint_like(&path).map(ToOwned::to_owned);
            if own.is_none() && !is_as_canonical(endpoint) {
                return None;
            }
            *endpoint = own.unwrap_or_else(|| normalize_path(&encoded));
        }
        Some(KeyValues { rule: rule.rule.id.clone(), values })
    }

    /// Returns the name of a counter, given a rule and a value for each of its placeholders. All spellings of
    /// an address or a path give the same name. Returns `None` if there is no such rule, or if the rule has
    /// other placeholders.
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

    /// Returns the name under which requests are counted, given a name that an operator may have spelled
    /// differently. If the values cannot be parsed, returns the name unchanged.
    pub(super) fn canonical_name<'k>(&self, key: &'k str) -> Cow<'k, str> {
        let canonical = self.values_of(key).and_then(|key| self.key_of(&key.rule, &key.values));
        canonical.map_or(Cow::Borrowed(key), Cow::Owned)
    }
}

/// Whether a decoded path is, but for empty segments, as an operator would write it: without dot segments and
/// encoded slashes.
fn is_as_canonical(path: &str) -> bool {
    !path.contains("%2F") && !path.split('/').any(|segment| matches!(segment, "." | ".."))
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
            counter::write(&mut name, "two", values.iter().map(|(name, value)| (name.as_str(), PlaceholderValue::Text(value))));
            let is_digest = name.starts_with("two|~~");
            let expected = KeyValues { rule: "two".to_owned(), values };
            prop_assert_eq!(rules().values_of(&name), (!is_digest).then_some(expected));
        }
    }

    fn any_value() -> impl Strategy<Value = String> {
        prop_oneof!["[ab|=~_:{}%/\r\n0-9]{0,8}", any::<String>(), "[ab:]{80,130}", Just("~7c".to_owned())]
    }
}
