//! Converts text from any source to a form that is safe to send.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::Serialize;

/// The longest policy name that is sent, in characters. Proxies commonly limit all header lines of a response
/// to 4 KiB together, and several policies have to fit.
pub(super) const MAX_NAME: usize = 64;

/// The number of characters that are kept of a longer name. `~` and a digest of the whole name follow.
const NAME_START: usize = MAX_NAME - 1 - DIGEST;

/// The number of hexadecimal digits of a digest.
const DIGEST: usize = 16;

/// Returns a policy name in the form that clients see, in headers and in bodies: at most 64 characters of
/// printable ASCII.
///
/// Other characters are percent-encoded as UTF-8. The end of a longer name is replaced with a digest, so that
/// different names stay different. A name that needs no change is not copied.
pub(super) fn policy_name(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX_NAME && name.bytes().all(is_printable) {
        return Cow::Borrowed(name);
    }
    let mut shown = String::with_capacity(MAX_NAME + 3);
    for byte in name.bytes().take(MAX_NAME + 1) {
        push_percent_encoded(&mut shown, byte, is_printable);
    }
    if shown.len() > MAX_NAME {
        shown.truncate(NAME_START);
        // Writing to a string cannot fail.
        let _ = write!(shown, "~{:0DIGEST$x}", digest(name));
    }
    Cow::Owned(shown)
}

/// Appends `byte` unchanged if `is_plain` allows it, otherwise percent-encoded.
pub(super) fn push_percent_encoded(text: &mut String, byte: u8, is_plain: fn(u8) -> bool) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if byte.is_ascii() && is_plain(byte) {
        return text.push(char::from(byte));
    }
    text.push('%');
    for nibble in [byte >> 4, byte & 15] {
        text.push(char::from(DIGITS[usize::from(nibble)]));
    }
}

/// Whether a byte is a space or a visible ASCII character.
pub(super) fn is_printable(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte)
}

/// Converts `text` to one line of at most `most` characters. Longer text ends in an ellipsis.
pub(super) fn one_line(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most && !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let clean = |char: char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char };
    let mut line: String = text.chars().map(clean).take(most).collect();
    if text.chars().nth(most).is_some() {
        line.pop();
        line.push('…');
    }
    Cow::Owned(line)
}

/// Serializes a value to JSON that stays text inside an HTML page or a script.
///
/// The replaced characters occur only inside JSON strings, where escapes are allowed.
pub(super) fn html_safe_json(value: &impl Serialize) -> String {
    // Cannot fail: structs of strings and numbers always have a JSON form.
    let json = serde_json::to_string(value).unwrap_or_default();
    if !json.contains(needs_escape) {
        return json;
    }
    let mut safe = String::with_capacity(json.len() + 32);
    for char in json.chars() {
        if needs_escape(char) {
            let _ = write!(safe, "\\u{:04x}", u32::from(char));
        } else {
            safe.push(char);
        }
    }
    safe
}

/// U+2028 and U+2029 end a line in scripts, though not in JSON.
fn needs_escape(char: char) -> bool {
    matches!(char, '<' | '>' | '&' | '\u{2028}' | '\u{2029}')
}

/// FNV-1a. Names come from the operator, so the digest only has to prevent accidental collisions.
fn digest(text: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_are_not_copied() {
        assert!(matches!(policy_name("per minute \"\\\""), Cow::Borrowed(_)));
        assert!(matches!(policy_name(&"n".repeat(MAX_NAME)), Cow::Borrowed(_)));
    }

    #[test]
    fn other_characters_are_encoded_and_not_dropped() {
        assert_eq!(policy_name("a\r\nb"), "a%0D%0Ab");
        assert_eq!(policy_name("é"), "%C3%A9");
        assert_eq!(policy_name(""), "");
    }

    #[test]
    fn a_long_name_ends_in_a_digest_of_all_of_it() {
        let (one, other) = ("n".repeat(65), "n".repeat(66));
        assert_eq!(policy_name(&one).len(), MAX_NAME);
        assert!(policy_name(&one).starts_with(&"n".repeat(NAME_START)));
        assert_ne!(policy_name(&one), policy_name(&other));
        // Short enough as written, but too long once encoded.
        assert_eq!(policy_name(&"é".repeat(20)).len(), MAX_NAME);
    }

    #[test]
    fn a_line_is_bounded_in_characters() {
        assert_eq!(one_line("log in", 6), "log in");
        assert_eq!(one_line("log in now", 6), "log i…");
        assert_eq!(one_line("éééé", 4), "éééé");
        assert_eq!(one_line("a\r\nb", 6), "a\u{FFFD}\u{FFFD}b");
    }

    #[test]
    fn markup_in_json_is_escaped() {
        let json = html_safe_json(&["</script>&\u{2028}"]);
        assert_eq!(json, r#"["\u003c/script\u003e\u0026\u2028"]"#);
        assert_eq!(html_safe_json(&["a"]), r#"["a"]"#);
    }
}
