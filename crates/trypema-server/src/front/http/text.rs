//! Percent-decoding.

use std::borrow::Cow;

/// Decodes a part of a query. Returns `None` if the result is not UTF-8.
pub(super) fn decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(Cow::Borrowed(text));
    }
    from_bytes(text, b' ')
}

/// Decodes a part of a path. Returns `None` if the result is not UTF-8.
pub(super) fn decoded_path(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    from_bytes(text, b'+')
}

fn from_bytes(text: &str, plus: u8) -> Option<Cow<'_, str>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => digit(rest.next()?)? << 4 | digit(rest.next()?)?,
            b'+' => plus,
            _ => byte,
        });
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_text_and_nothing_else() {
        assert_eq!(decoded("a+b%20%C3%A4").as_deref(), Some("a b ä"));
        assert_eq!(decoded_path("per-user%7Cuser=a+b").as_deref(), Some("per-user|user=a+b"));
        for broken in ["%", "%4", "%zz", "%+1", "%FF"] {
            assert_eq!(decoded(broken), None, "{broken}");
        }
    }
}
