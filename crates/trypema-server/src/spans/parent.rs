//! The caller's span, from the W3C header `traceparent`.

/// The ids of the caller's span, which is sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parent {
    /// The trace id: 32 hexadecimal digits.
    pub(super) trace: Box<str>,
    /// The span id: 16 hexadecimal digits.
    pub(super) span: Box<str>,
}

impl Parent {
    /// Returns the caller's span if it is sampled. Returns `None` for a header that is missing or
    /// malformed.
    pub(super) fn read(traceparent: &str) -> Option<Self> {
        let mut parts = traceparent.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_known = is_hexadecimal(version, 2)
            && version != "ff"
            && (version != "00" || parts.next().is_none())
            && is_id(trace, 32)
            && is_id(span, 16)
            && is_hexadecimal(flags, 2);
        let is_sampled = u8::from_str_radix(flags, 16).is_ok_and(|flags| flags & 1 == 1);
        (is_known && is_sampled).then(|| Self { trace: trace.into(), span: span.into() })
    }
}

fn is_hexadecimal(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether `text` is an id of this length. The specification forbids an id of all zeros.
fn is_id(text: &str, length: usize) -> bool {
    is_hexadecimal(text, length) && text.bytes().any(|byte| byte != b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sampled_parents_count() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let found = Parent::read(&format!("00-{trace}-b7ad6b7169203331-01")).unwrap();
        assert_eq!((&*found.trace, &*found.span), (trace, "b7ad6b7169203331"));
        assert!(
            Parent::read(&format!("cc-{trace}-b7ad6b7169203331-01-later")).is_some(),
            "later versions may say more"
        );
        for other in [
            String::new(),
            "00".to_owned(),
            format!("00-{trace}-b7ad6b7169203331-00"),
            format!("00-{trace}-b7ad6b7169203331-01-more"),
            format!("ff-{trace}-b7ad6b7169203331-01"),
            format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)),
            format!("00-{trace}-0000000000000000-01"),
            format!("00-{}-b7ad6b7169203331-01", trace.to_uppercase()),
            format!("00-{trace}-b7ad6b716920333é-01"),
        ] {
            assert_eq!(Parent::read(&other), None, "{other}");
        }
    }
}
