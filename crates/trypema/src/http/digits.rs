//! Formats numbers without allocations and without `core::fmt`.

use ::http::HeaderValue;

/// The numbers below 1000 with three digits each. Numbers are formatted in groups of three digits; most have
/// one group.
static THREES: [[u8; 3]; 1_000] = {
    let mut threes = [[b'0'; 3]; 1_000];
    let mut number = 0;
    while number < threes.len() {
        threes[number] = [digit(number / 100), digit(number / 10), digit(number)];
        number += 1;
    }
    threes
};

const fn digit(number: usize) -> u8 {
    // Cannot truncate: the remainder is below ten.
    b'0' + (number % 10) as u8
}

/// The number of digits of `u64::MAX`, rounded up to whole groups of three.
const MAX_DIGITS: usize = (u64::MAX.ilog10() as usize + 1).next_multiple_of(3);

/// A number as decimal digits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Digits {
    /// The digits, from `start` to the end.
    bytes: [u8; MAX_DIGITS],
    start: usize,
}

impl Digits {
    pub(super) fn of(number: u64) -> Self {
        let (mut bytes, mut start, mut rest) = ([0; MAX_DIGITS], MAX_DIGITS, number);
        loop {
            start -= 3;
            let three = (rest % 1_000) as usize;
            bytes[start..start + 3].copy_from_slice(&THREES[three]);
            rest /= 1_000;
            if rest == 0 {
                return Self { bytes, start: start + zeros_before(three) };
            }
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// Returns a number as a header value. A number below 1000 needs no allocation and any other needs one,
/// compared with two in `HeaderValue::from`.
pub(super) fn header_value(number: u64) -> HeaderValue {
    let three = usize::try_from(number).ok().filter(|number| *number < THREES.len());
    let small = three.and_then(|three| std::str::from_utf8(&THREES[three][zeros_before(three)..]).ok());
    match small {
        Some(digits) => HeaderValue::from_static(digits),
        // Cannot fail: digits are always a valid header value.
        None => HeaderValue::from_bytes(Digits::of(number).as_bytes())
            .unwrap_or_else(|_| HeaderValue::from(number)),
    }
}

/// Returns the number of leading zeros to omit from the first group of three digits.
fn zeros_before(three: usize) -> usize {
    match three {
        0..10 => 2,
        10..100 => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_usual() {
        let large = [12_345, 1_000_000, 10_010_010, 1 << 53, u64::MAX - 1, u64::MAX];
        for number in (0..=2_000).chain(large) {
            assert_eq!(Digits::of(number).as_bytes(), number.to_string().as_bytes());
            assert_eq!(header_value(number), HeaderValue::from(number));
        }
    }
}
