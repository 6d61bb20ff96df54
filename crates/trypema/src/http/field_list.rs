//! Structured fields (RFC 9651): lists of strings with parameters.

use ::http::HeaderValue;

use super::digits::Digits;

/// The largest integer in a structured field. Larger numbers are written as this one.
pub(super) const MAX_INTEGER: u64 = 999_999_999_999_999;

/// A list of strings with parameters.
#[derive(Debug, Default)]
pub(super) struct FieldList(Vec<u8>);

/// A parameter of an item: `;key=number`, or a constant such as `;key="text"`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parameter {
    start: &'static str,
    digits: Option<Digits>,
}

impl Parameter {
    /// Creates a parameter from the text before the number, such as `;q=`, and the number.
    pub(super) fn number(start: &'static str, number: u64) -> Self {
        Self { start, digits: Some(Digits::of(number.min(MAX_INTEGER))) }
    }

    /// Creates a parameter that is always the same, such as `;key="text"`.
    pub(super) fn constant(text: &'static str) -> Self {
        Self { start: text, digits: None }
    }

    /// Returns the digits of the number; none for a constant.
    fn digits(&self) -> &[u8] {
        self.digits.as_ref().map_or(&[], Digits::as_bytes)
    }

    fn len(&self) -> usize {
        self.start.len() + self.digits().len()
    }
}

impl FieldList {
    /// Appends an item. `name` has to be printable ASCII.
    pub(super) fn push(&mut self, name: &str, parameters: &[Parameter]) {
        let text = &mut self.0;
        let escapes = name.bytes().filter(|byte| needs_escape(*byte)).count();
        if text.is_empty() {
            // Most lists have one item. With the exact capacity, converting the list to a header value does
            // not allocate again.
            let numbers: usize = parameters.iter().map(Parameter::len).sum();
            text.reserve_exact(name.len() + escapes + "\"\"".len() + numbers);
        } else {
            text.extend_from_slice(b", ");
        }
        text.push(b'"');
        if escapes == 0 {
            text.extend_from_slice(name.as_bytes());
        } else {
            push_escaped(text, name);
        }
        text.push(b'"');
        for parameter in parameters {
            text.extend_from_slice(parameter.start.as_bytes());
            text.extend_from_slice(parameter.digits());
        }
    }

    /// Returns the list as a header value; `None` if it is empty.
    pub(super) fn into_value(self) -> Option<HeaderValue> {
        // Cannot fail: printable ASCII is always a valid header value.
        if self.0.is_empty() { None } else { HeaderValue::try_from(self.0).ok() }
    }
}

fn push_escaped(text: &mut Vec<u8>, name: &str) {
    for byte in name.bytes() {
        if needs_escape(byte) {
            text.push(b'\\');
        }
        text.push(byte);
    }
}

fn needs_escape(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\')
}
