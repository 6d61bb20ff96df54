//! The attributes and costs of a request, as every front end builds them.

mod map;
mod request;

use std::net::IpAddr;

pub(crate) use map::{Attribute, AttributeKind, AttributeMap, AttributeSource, DotSegments, Fields};
pub(crate) use request::{Costs, OwnedRequest, OwnedSet, request_of};

use crate::refusal::Refusal;

/// The maximum number of attributes of one request. The engine accepts no more.
pub(crate) const MAX_ATTRIBUTES: usize = 32;
/// The maximum length of an attribute's name, in bytes.
pub(crate) const MAX_ATTRIBUTE_NAME: usize = 64;
/// The maximum length of an attribute's value, in bytes: longer than any usual path.
pub(crate) const MAX_ATTRIBUTE_VALUE: usize = 8 * 1024;

/// The error of an `ip` that is not an address. Such a value would get a counter of its own and match no
/// list.
const NO_ADDRESS: &str = "ip: need an address, as in 203.0.113.9 or 2001:db8::1, without a port";
/// The initial capacity of the text: enough for usual requests without reallocation.
const USUAL_BYTES: usize = 96;

/// Attribute names and values in one buffer, each name once.
#[derive(Debug, Clone)]
pub(crate) struct Attributes {
    text: String,
    /// The end of each name, and of the value after it.
    ends: Vec<(usize, usize)>,
}

impl Default for Attributes {
    fn default() -> Self {
        Self { text: String::with_capacity(USUAL_BYTES), ends: Vec::with_capacity(4) }
    }
}

impl Attributes {
    /// Adds an attribute.
    ///
    /// # Errors
    ///
    /// The attribute exceeds a bound, or is given twice, or is an `ip` that is not an address.
    pub(crate) fn add(&mut self, name: &str, value: &str) -> Result<(), Refusal> {
        if self.ends.len() == MAX_ATTRIBUTES {
            return Err(Refusal::invalid(format!("more than {MAX_ATTRIBUTES} attributes")));
        }
        if name.is_empty() || name.len() > MAX_ATTRIBUTE_NAME {
            let reason = format!("an attribute's name needs 1 to {MAX_ATTRIBUTE_NAME} bytes");
            return Err(Refusal::invalid(reason));
        }
        if value.len() > MAX_ATTRIBUTE_VALUE {
            let reason =
                format!("the value of attribute {name:?} is longer than {MAX_ATTRIBUTE_VALUE} bytes");
            return Err(Refusal::invalid(reason));
        }
        if name == "ip" && value.parse::<IpAddr>().is_err() {
            return Err(Refusal::invalid(NO_ADDRESS));
        }
        if self.iter().any(|(known, _)| known == name) {
            return Err(Refusal::invalid(format!("attribute {name:?} is given twice")));
        }
        self.text.push_str(name);
        let end_of_name = self.text.len();
        self.text.push_str(value);
        self.ends.push((end_of_name, self.text.len()));
        Ok(())
    }

    /// Returns names and values in the order in which they were added.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut start = 0;
        self.ends.iter().map(move |(end_of_name, end)| {
            let pair = (&self.text[start..*end_of_name], &self.text[*end_of_name..*end]);
            start = *end;
            pair
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_back_as_they_were_added() {
        let mut attributes = Attributes::default();
        for (name, value) in [("user", "ann"), ("endpoint", ""), ("a", "ü"), ("ip", "2001:db8::1")] {
            attributes.add(name, value).unwrap();
        }
        let pairs: Vec<_> = attributes.iter().collect();
        assert_eq!(pairs, [("user", "ann"), ("endpoint", ""), ("a", "ü"), ("ip", "2001:db8::1")]);
        for (name, value, expected) in [
            ("user", "bob", "given twice"),
            ("", "x", "name needs 1 to 64 bytes"),
            ("ip2", &"x".repeat(MAX_ATTRIBUTE_VALUE + 1), "is longer than 8192 bytes"),
        ] {
            let Err(Refusal::Invalid(reason)) = attributes.add(name, value) else { panic!("{name}") };
            assert!(reason.contains(expected), "{reason}");
        }
        assert_eq!(attributes.iter().count(), 4);
    }
}
