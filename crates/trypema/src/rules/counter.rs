//! Counter names: a rule's id and the values of its placeholders. Different ids or values give different
//! names.

use sha2::{Digest, Sha256};

use super::address::key_of;
use super::endpoint::upper_case_method;
use super::hashing::AttributeHash;
use crate::address_key::AddressKey;

/// The longest name in bytes, because names appear in responses and logs. A longer name is replaced with a
/// digest.
pub(in crate::rules) const MAX_BYTES: usize = 255;

/// The length of a digest: 160 bits, so that a client cannot construct two values with the same digest.
const DIGEST_BYTES: usize = 20;

/// The separator between an id and a digest. Escaping never produces this sequence.
pub(super) const DIGEST_SEPARATOR: &str = "|~~";

/// Appends a counter name to `text`: `id|name=value|name=value`.
///
/// The placeholders come in alphabetical order, so that rewording a key pattern does not change the name. In
/// values, `|`, `~` and control characters are escaped as `~` and two hexadecimal digits, so that every name
/// has only one reading. Names may contain any other character; the Redis provider encodes them again.
pub(crate) fn write<'v>(
    text: &mut String,
    id: &str,
    values: impl Iterator<Item = (&'v str, PlaceholderValue<'v>)>,
) {
    let start = text.len();
    text.push_str(id);
    for (name, value) in values {
        text.push('|');
        text.push_str(name);
        text.push('=');
        value.write(text);
    }
    if text.len() - start > MAX_BYTES {
        let digest = Sha256::digest(&text.as_bytes()[start..]);
        text.truncate(start);
        text.push_str(id);
        text.push_str(DIGEST_SEPARATOR);
        digest.iter().take(DIGEST_BYTES).for_each(|byte| push_hexadecimal(text, *byte));
    }
}

/// Returns the id of the rule that a counter belongs to, with which its name begins.
pub(super) fn rule_of(name: &str) -> &str {
    // An id is short: comparing its bytes is quicker than setting up a search.
    let end = name.bytes().position(|byte| byte == b'|');
    end.and_then(|end| name.get(..end)).unwrap_or(name)
}

/// The value of a placeholder.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PlaceholderValue<'a> {
    Text(&'a str),
    /// A path. The root is the empty string here and is written as `/`.
    Path(&'a str),
    /// An HTTP method, in any case.
    Method(&'a str),
    /// A client address, already reduced to its key.
    Address(AddressKey),
    /// The hash of a value.
    Hash(AttributeHash),
}

impl<'a> PlaceholderValue<'a> {
    /// Converts the value of an attribute. An `ip` becomes its address key and a `method` is written in upper
    /// case, so that each has one spelling.
    pub(super) fn of(name: &str, value: &'a str) -> Self {
        match name {
            "ip" => key_of(value).map_or(Self::Text(value), Self::Address),
            "method" => Self::Method(value),
            _ => Self::Text(value),
        }
    }

    pub(super) fn write(self, text: &mut String) {
        match self {
            Self::Text(value) => escape(text, value),
            Self::Method(method) => escape(text, &upper_case_method(method)),
            Self::Address(address) => escape(text, address.as_str()),
            Self::Hash(hash) => text.push_str(hash.as_str()),
            Self::Path("") => text.push('/'),
            Self::Path(path) => escape(text, path),
        }
    }
}

fn is_escaped(byte: u8) -> bool {
    matches!(byte, b'|' | b'~') || byte.is_ascii_control()
}

fn escape(text: &mut String, value: &str) {
    if !value.bytes().any(is_escaped) {
        return text.push_str(value);
    }
    for character in value.chars() {
        match u8::try_from(character) {
            Ok(byte) if byte.is_ascii() && is_escaped(byte) => {
                text.push('~');
                push_hexadecimal(text, byte);
            }
            _ => text.push(character),
        }
    }
}

/// Reverses [`escape`]. Returns `None` if an escape sequence is malformed.
pub(super) fn unescape(text: &str) -> Option<String> {
    let mut parts = text.split('~');
    let mut value = parts.next()?.to_owned();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        value.push(char::from(u8::from_str_radix(digits, 16).ok()?));
        value.push_str(rest);
    }
    Some(value)
}

fn push_hexadecimal(text: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text.push(DIGITS[usize::from(byte >> 4)] as char);
    text.push(DIGITS[usize::from(byte & 15)] as char);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(id: &str, values: &[(&str, &str)]) -> String {
        let mut text = String::new();
        write(&mut text, id, values.iter().map(|(name, value)| (*name, PlaceholderValue::Text(value))));
        text
    }

    #[test]
    fn names_can_be_read() {
        assert_eq!(name("api", &[]), "api");
        assert_eq!(name("api", &[("ip", "::1"), ("user", "ann")]), "api|ip=::1|user=ann");
        assert_eq!(name("api", &[("user", "a|b=c\r\n")]), "api|user=a~7cb=c~0d~0a");
        let long = "x".repeat(10_000);
        assert_eq!(name("api", &[("user", &long)]).len(), 4 + 2 + 40);
    }

    proptest! {
        #[test]
        fn different_values_have_different_names(
            one in proptest::collection::vec(any_value(), 2),
            other in proptest::collection::vec(any_value(), 2),
        ) {
            let name_of = |values: &[String]| name("r", &[("a", &values[0]), ("b", &values[1])]);
            prop_assert_eq!(one == other, name_of(&one) == name_of(&other));
            let name = name_of(&one);
            prop_assert!(name.len() <= MAX_BYTES);
            prop_assert!(!name.contains(|character: char| character.is_ascii_control()), "{}", name);
        }
    }

    /// Values that are likely to collide if escaping is wrong.
    fn any_value() -> impl Strategy<Value = String> {
        prop_oneof![
            "[ab|=~_:{}%/\r\n0-9]{0,6}",
            any::<String>(),
            "[ab]{250,260}",
            Just("a|b=c".to_owned()),
            Just("~7c".to_owned()),
        ]
    }
}
