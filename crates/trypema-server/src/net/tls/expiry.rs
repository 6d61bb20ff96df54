//! The time at which a certificate expires, read from its DER encoding (RFC 5280, section 4.1).

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// The optional version number at the beginning of a certificate's fields.
const VERSION: u8 = 0xa0;

/// The end of a certificate's validity, in seconds of Unix time.
///
/// Returns `None` if the encoding is not that of a certificate.
pub(super) fn expires_at_s(certificate: &[u8]) -> Option<u64> {
    let mut fields = Elements(Elements(certificate).content_of(SEQUENCE)?).inside(SEQUENCE)?;
    if fields.0.first() == Some(&VERSION) {
        fields.content_of(VERSION)?;
    }
    fields.content_of(INTEGER)?; // The serial number.
    fields.content_of(SEQUENCE)?; // The algorithm of the signature.
    fields.content_of(SEQUENCE)?; // The issuer.
    let mut validity = fields.inside(SEQUENCE)?;
    validity.next()?; // Its beginning.
    let (tag, time) = validity.next()?;
    unix_seconds(tag, std::str::from_utf8(time).ok()?)
}

/// DER elements that follow each other.
struct Elements<'d>(&'d [u8]);

impl<'d> Elements<'d> {
    /// Reads the next element, and returns its tag and its content.
    fn next(&mut self) -> Option<(u8, &'d [u8])> {
        let (&[tag, first], rest) = self.0.split_first_chunk()?;
        let (length, rest) = match first {
            ..=0x7f => (usize::from(first), rest),
            // The length has up to four bytes of its own.
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    fn content_of(&mut self, expected: u8) -> Option<&'d [u8]> {
        self.next().filter(|(tag, _)| *tag == expected).map(|(_, content)| content)
    }

    fn inside(&mut self, expected: u8) -> Option<Self> {
        self.content_of(expected).map(Self)
    }
}

/// Parses `YYMMDDhhmmssZ`, with years from 1950 to 2049, or `YYYYMMDDhhmmssZ`.
fn unix_seconds(tag: u8, text: &str) -> Option<u64> {
    let number = |part: &str| -> Option<u64> {
        part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok()).flatten()
    };
    let digits = text.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = digits.split_at_checked(2)?;
            let year = number(year)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = digits.split_at_checked(4)?;
            (number(year)?, rest)
        }
        _ => return None,
    };
    let part = |index: usize| number(rest.get(2 * index..2 * index + 2)?);
    let (month, day, hour, minute, second) = (part(0)?, part(1)?, part(2)?, part(3)?, part(4)?);
    let is_date = rest.len() == 10 && (1..=12).contains(&month) && (1..=31).contains(&day);
    let days = days_since_epoch(year, month, day).filter(|_| is_date)?;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar; `None` before that.
fn days_since_epoch(year: u64, month: u64, day: u64) -> Option<u64> {
    const DAYS_TO_1970: u64 = 719_162;
    const DAYS_BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let before = year.checked_sub(1)?;
    let leap_days = before / 4 - before / 100 + before / 400 + u64::from(is_leap && month > 2);
    let days_before = DAYS_BEFORE.get(usize::try_from(month.checked_sub(1)?).ok()?)?;
    (before * 365 + leap_days + days_before + day.checked_sub(1)?).checked_sub(DAYS_TO_1970)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_since_the_epoch() {
        for (tag, text, expected) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "000229235959Z", Some(951_868_799)),
            (UTC_TIME, "261120001734Z", Some(1_795_133_854)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME, "500101000000Z", None),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (GENERALIZED_TIME, "19691231235959Z", None),
            (GENERALIZED_TIME, "00000101000000Z", None),
            (UTC_TIME, "261320001734Z", None),
            (UTC_TIME, "2611200017Z", None),
            (UTC_TIME, "2611200017345Z", None),
            (UTC_TIME, "261120001734", None),
            (UTC_TIME, "+61120001734Z", None),
            (SEQUENCE, "261120001734Z", None),
        ] {
            assert_eq!(unix_seconds(tag, text), expected, "{text}");
        }
    }

    /// Cuts of an encoding are no certificate, and nothing panics.
    #[test]
    fn a_part_of_a_certificate_has_no_end() {
        let time = |text: &str| [&[UTC_TIME, 13], text.as_bytes()].concat();
        let sequence = |content: Vec<u8>| [&[SEQUENCE, 0x81, content.len() as u8], &content[..]].concat();
        let validity = [time("250101000000Z"), time("261120001734Z")].concat();
        let others = [&[VERSION, 3, INTEGER, 1, 2, INTEGER, 1, 7][..], &[SEQUENCE, 0, SEQUENCE, 0]].concat();
        let certificate = sequence(sequence([others, sequence(validity)].concat()));
        assert_eq!(expires_at_s(&certificate), Some(1_795_133_854));
        for end in 0..certificate.len() {
            assert_eq!(expires_at_s(&certificate[..end]), None, "{end}");
        }
    }
}
