//! Durations and numbers in the format's notation.

/// The units of time in microseconds, the longest first.
const UNITS: [(&str, u64); 6] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

/// Returns the microseconds of `text` (`1.5s`, `10ms`, `0`), or `None` if it is malformed or not a whole
/// number of them.
pub(super) fn micros(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')?;
    let (number, unit) = text.split_at_checked(digits_end)?;
    let (_, unit_us) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole_us = count(whole)?.checked_mul(*unit_us)?;
    whole_us.checked_add(fraction_us(fraction, *unit_us)?)
}

/// Parses a whole number, which may contain underscores.
pub(crate) fn count(text: &str) -> Option<u64> {
    let is_digit = |c: char| c.is_ascii_digit() || c == '_';
    if !text.starts_with(|c: char| c.is_ascii_digit()) || !text.chars().all(is_digit) {
        return None;
    }
    text.replace('_', "").parse().ok()
}

/// Formats `us` in the longest unit up to seconds that gives a whole number.
pub(super) fn shown(us: u64) -> String {
    let seconds_or_less = UNITS.iter().skip(3);
    match seconds_or_less.clone().find(|(_, unit)| us.is_multiple_of(*unit)) {
        Some((name, unit)) if us > 0 => format!("{}{name}", us / unit),
        _ => "0".to_owned(),
    }
}

/// Returns the decimal digits as a fraction of `unit_us`.
fn fraction_us(digits: &str, unit_us: u64) -> Option<u64> {
    if digits.is_empty() {
        return Some(0);
    }
    let scale = 10_u64.checked_pow(u32::try_from(digits.len()).ok()?)?;
    let scaled = count(digits)?.checked_mul(unit_us)?;
    scaled.is_multiple_of(scale).then(|| scaled / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_or_refused() {
        assert_eq!(micros("1.5s"), Some(1_500_000));
        assert_eq!(micros("0.000001s"), Some(1));
        assert_eq!(micros("1_000us"), Some(1_000));
        assert_eq!(micros("2d"), Some(172_800_000_000));
        for bad in ["", "s", "1", "1.5", "0.5us", "1.2.3s", "-1s", "1w", ".5s", "1é", "99999999999999d"] {
            assert_eq!(micros(bad), None, "{bad}");
        }
    }

    #[test]
    fn times_are_shown_as_they_are_read() {
        for text in ["0", "1us", "1500us", "2ms", "600s"] {
            assert_eq!(micros(text).map(shown).as_deref(), Some(text));
        }
    }
}
