//! The replies to `INFO` and `CLUSTER INFO`.

use std::collections::BTreeMap;

/// The fields of one reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info(BTreeMap<String, String>);

impl Info {
    pub(crate) fn parse(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Self(fields.map(|(name, value)| (name.to_owned(), value.trim_end().to_owned())).collect())
    }

    /// Returns the text of a field; empty if there is no such field.
    pub fn text(&self, field: &str) -> &str {
        self.0.get(field).map_or("", String::as_str)
    }

    /// Returns the number of a field, if it is one.
    pub fn number(&self, field: &str) -> Option<u64> {
        self.text(field).parse().ok()
    }
}
