//! The HTTP status of a denial.

use http::StatusCode;

/// Statuses from 400 to 499 that clients and proxies do not take as a denial: they log in to a proxy (407),
/// repeat the request automatically (408, 421, 425), or switch the protocol (426).
const OTHER_MEANING: [u16; 5] = [407, 408, 421, 425, 426];

/// An HTTP status that every client and proxy takes as a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DenyStatus(StatusCode);

/// The error message for a status that is not a denial.
pub(crate) const NOT_A_DENIAL: &str = "need a status from 400 to 499 that means a denial, as 401, 403 and 429 do; not 407, 408, 421, 425 or 426";

impl DenyStatus {
    /// 429: for clients, and for proxies that forward the status of a denial unchanged.
    pub(crate) const TOO_MANY_REQUESTS: Self = Self(StatusCode::TOO_MANY_REQUESTS);
    /// 401: besides 403 the only denial that nginx's `auth_request` accepts.
    pub(crate) const UNAUTHORIZED: Self = Self(StatusCode::UNAUTHORIZED);

    /// 403: the other one.
    pub(crate) const FORBIDDEN: Self = Self(StatusCode::FORBIDDEN);

    /// Returns the status, or `None` if it is not a denial.
    pub(crate) fn new(status: u16) -> Option<Self> {
        let is_denial = (400..=499).contains(&status) && !OTHER_MEANING.contains(&status);
        StatusCode::from_u16(status).ok().filter(|_| is_denial).map(Self)
    }

    /// Returns the status code.
    pub(crate) fn status(self) -> StatusCode {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_denials_are_accepted() {
        let accepted: Vec<u16> = (0..=u16::MAX).filter(|status| DenyStatus::new(*status).is_some()).collect();
        let expected: Vec<u16> =
            (400..=499).filter(|status| ![407, 408, 421, 425, 426].contains(status)).collect();
        assert_eq!(accepted, expected);
    }
}
