//! Key patterns: text with placeholders, such as `tenant:{api_key}`.

/// The longest attribute name, in bytes. Attribute names are part of every counter name.
const MAX_NAME_BYTES: usize = 64;

/// Returns the placeholders of a pattern, each once. The error is the reason why the pattern is invalid.
pub(super) fn placeholders(pattern: &str) -> Result<Vec<&str>, String> {
    let mut names: Vec<&str> = Vec::new();
    let mut rest = pattern;
    while let Some(at) = rest.find(['{', '}']) {
        let (opening, after) = (rest.as_bytes()[at] == b'{', &rest[at + 1..]);
        if !opening {
            return Err(format!("pattern {pattern:?} closes a brace that was not opened"));
        }
        let Some(end) = after.find(['{', '}']).filter(|end| after.as_bytes()[*end] == b'}') else {
            return Err(format!("pattern {pattern:?} does not close a brace"));
        };
        let name = &after[..end];
        if let Some(reason) = problem_with_name(name) {
            return Err(format!("placeholder {name:?} {reason}"));
        }
        if !names.contains(&name) {
            names.push(name);
        }
        rest = &after[end + 1..];
    }
    Ok(names)
}

/// Returns the reason why an attribute name is invalid, or `None` if it is valid.
pub(super) fn problem_with_name(name: &str) -> Option<String> {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let is_name = !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.bytes().all(is_fine);
    (!is_name).then(|| format!("is not 1 to {MAX_NAME_BYTES} letters, digits, `_`, `-` and `.`"))
}
