//! What `INFO` and `CLUSTER INFO` say.

use std::collections::BTreeMap;

/// The fields of one answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info(BTreeMap<String, String>);

impl Info {
    pub(crate) fn parse(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Self(fields.map(|(name, value)| (name.to_owned(), value.trim_end().to_owned())).collect())
    }

    /// The field's text; empty if there is no such field.
    pub fn text(&self, field: &str) -> &str {
        self.0.get(field).map_or("", String::as_str)
    }

    /// The field's number, if there is one.
    pub fn number(&self, field: &str) -> Option<u64> {
        self.text(field).parse().ok()
    }
}
