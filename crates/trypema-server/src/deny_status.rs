//! The status of a denial.

use http::StatusCode;

/// Statuses from 400 to 499 that do not mean "denied" to clients and proxies: they log in to a proxy (407), send the request again by
/// themselves (408, 421, 425), or change the protocol (426).
const OTHER_MEANING: [u16; 5] = [407, 408, 421, 425, 426];

/// A status that every client and proxy takes for a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DenyStatus(StatusCode);

/// The error of a status that is no denial.
pub(crate) const NOT_A_DENIAL: &str = "need a status from 400 to 499 that means a denial, as 401, 403 and 429 do; not 407, 408, 421, 425 or 426";

impl DenyStatus {
    /// 429: for clients, and for every proxy that passes a denial on as it is.
    pub(crate) const TOO_MANY_REQUESTS: Self = Self(StatusCode::TOO_MANY_REQUESTS);
    /// 401: with 403 the only denial that nginx's `auth_request` understands.
    pub(crate) const UNAUTHORIZED: Self = Self(StatusCode::UNAUTHORIZED);

    /// Returns the status, or `None` if it is not a denial.
    pub(crate) fn new(status: u16) -> Option<Self> {
        let is_denial = (400..=499).contains(&status) && !OTHER_MEANING.contains(&status);
        StatusCode::from_u16(status).ok().filter(|_| is_denial).map(Self)
    }

    /// Returns the status for an answer.
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
