//! Scalars. Quoted text is always a string; plain text may be a number, a boolean or null.

use std::borrow::Cow;
use std::str::FromStr;

/// A value that is neither a list nor a mapping.
#[derive(Debug)]
pub(super) struct Scalar<'a> {
    pub(super) text: Cow<'a, str>,
    /// Whether the scalar is written without quotes.
    pub(super) is_plain: bool,
}

/// The type and value of a scalar, if the target type does not determine them.
#[derive(Debug, PartialEq)]
pub(super) enum ScalarValue<'a> {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(&'a str),
}

impl Scalar<'_> {
    /// Returns the interpretation of YAML 1.2.
    pub(super) fn value(&self) -> ScalarValue<'_> {
        if self.is_null() {
            return ScalarValue::Null;
        }
        let truth = self.as_bool().map(ScalarValue::Bool);
        truth
            .or_else(|| self.as_integer().map(ScalarValue::Unsigned))
            .or_else(|| self.as_integer().map(ScalarValue::Signed))
            .or_else(|| self.as_float().map(ScalarValue::Float))
            .unwrap_or(ScalarValue::Text(&self.text))
    }

    /// Whether the scalar is null: empty, `~` or `null`.
    pub(super) fn is_null(&self) -> bool {
        matches!(self.plain(), Some("" | "~" | "null" | "Null" | "NULL"))
    }

    /// Returns the value of a boolean. Only `true` and `false` are booleans, not `yes` or `on`.
    pub(super) fn as_bool(&self) -> Option<bool> {
        match self.plain()? {
            "true" | "True" | "TRUE" => Some(true),
            "false" | "False" | "FALSE" => Some(false),
            _ => None,
        }
    }

    /// Returns the value of a decimal integer. Leading zeros are refused, because some YAML parsers read such
    /// a number as octal.
    pub(super) fn as_integer<N: FromStr>(&self) -> Option<N> {
        let text = self.plain()?;
        let digits = text.strip_prefix('-').unwrap_or(text);
        let has_leading_zero = digits.len() > 1 && digits.starts_with('0');
        if has_leading_zero || digits.starts_with('+') { None } else { text.parse().ok() }
    }

    /// Returns the value of a number, including NaN and infinity, which no limit accepts.
    pub(super) fn as_float(&self) -> Option<f64> {
        match self.plain()? {
            ".nan" | ".NaN" | ".NAN" => Some(f64::NAN),
            ".inf" | ".Inf" | ".INF" => Some(f64::INFINITY),
            "-.inf" | "-.Inf" | "-.INF" => Some(f64::NEG_INFINITY),
            // Excludes `nan`, `inf` and `infinity`, which `f64::from_str` accepts.
            text => text.parse().ok().filter(|_| text.contains(|c: char| c.is_ascii_digit())),
        }
    }

    fn plain(&self) -> Option<&str> {
        self.is_plain.then_some(&*self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Scalar<'_> {
        Scalar { text: text.into(), is_plain: true }
    }

    #[test]
    fn plain_text_may_be_more_than_text() {
        for (text, meaning) in [
            ("", ScalarValue::Null),
            ("~", ScalarValue::Null),
            ("true", ScalarValue::Bool(true)),
            ("False", ScalarValue::Bool(false)),
            ("0", ScalarValue::Unsigned(0)),
            ("18446744073709551615", ScalarValue::Unsigned(u64::MAX)),
            ("-5", ScalarValue::Signed(-5)),
            ("1.5", ScalarValue::Float(1.5)),
            ("1e3", ScalarValue::Float(1000.0)),
            ("18446744073709551616", ScalarValue::Float(18_446_744_073_709_551_616.0)),
            (".inf", ScalarValue::Float(f64::INFINITY)),
        ] {
            assert_eq!(plain(text).value(), meaning, "{text}");
        }
        assert!(plain(".nan").as_float().is_some_and(f64::is_nan));
    }

    #[test]
    fn what_only_some_readers_understand_is_text() {
        for text in ["yes", "no", "on", "Off", "nan", "inf", "0x10", "0o7", "1_000", "1:30", "NULL0"] {
            assert_eq!(plain(text).value(), ScalarValue::Text(text));
        }
        for text in ["010", "-01", "+5"] {
            assert_eq!(plain(text).as_integer::<i64>(), None, "{text}");
        }
    }

    #[test]
    fn quoted_text_is_text() {
        for text in ["", "~", "true", "5", "1.5"] {
            let quoted = Scalar { text: text.into(), is_plain: false };
            assert_eq!(quoted.value(), ScalarValue::Text(text));
        }
    }
}
