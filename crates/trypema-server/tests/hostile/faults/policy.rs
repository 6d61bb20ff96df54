//! The valid responses of each store failure policy.

use crate::client::Reply;

/// A rule for each policy. Rules without one use the server's default, `local`. The windows are too long to
/// end during a test.
pub(super) const RULES: &str = "
rules:
  - {id: error, scope: user, key_pattern: '{error}', on_store_failure: error, strategy: {fixed_window: {limit: 1000, window: 30d}}}
  - {id: allow, scope: user, key_pattern: '{allow}', on_store_failure: allow, strategy: {fixed_window: {limit: 1000, window: 30d}}}
  - {id: deny, scope: user, key_pattern: '{deny}', on_store_failure: deny, strategy: {fixed_window: {limit: 1000, window: 30d}}}
  - {id: local, scope: user, key_pattern: '{local}', strategy: {fixed_window: {limit: 1000, window: 30d}}}
";
pub(super) const LIMIT: u64 = 1_000;
/// The number of units that `local` may admit without Redis, if four servers share the limit.
pub(super) const LOCAL_SHARE: u64 = LIMIT / 4;
pub(super) const FLAGS: [&str; 4] = ["--on-store-failure", "local", "--instances", "4"];

/// The policy of a rule for an unreachable Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Policy {
    Error,
    Allow,
    Deny,
    /// `Deny`, with denials reported by status.
    DenyByStatus,
    Local,
}

/// The kind of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Allowed by Redis, or from units leased from it.
    Allowed,
    Denied,
    /// Allowed without Redis.
    SubstituteAllowed,
    /// Denied without Redis, or not decided at all: 503.
    SubstituteDenied,
}

impl Policy {
    pub(super) const ALL: [Self; 5] = [Self::Error, Self::Allow, Self::Deny, Self::DenyByStatus, Self::Local];

    /// Returns the name of the policy's rule, which is also the attribute in the rule's key.
    pub(super) fn rule(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Allow => "allow",
            Self::Deny | Self::DenyByStatus => "deny",
            Self::Local => "local",
        }
    }

    /// Returns a request to which only the policy's rule applies, with the key of this round.
    pub(super) fn question(self, round: usize) -> String {
        format!(r#"{{"attributes":{{"{}":"{round}"}}}}"#, self.rule())
    }

    pub(super) fn path(self) -> &'static str {
        if self == Self::DenyByStatus { "/v1/check?deny_status=429" } else { "/v1/check" }
    }

    /// Returns the kind of a response. Fails if this policy does not permit the response.
    pub(super) fn judge(self, reply: &Reply) -> Kind {
        let kind = kind(reply);
        assert_eq!(self.status(kind), Some(reply.status), "{self:?} gives no such {kind:?}: {reply:?}");
        kind
    }

    /// Returns the status of a response of this kind, or `None` if the policy never gives one.
    fn status(self, kind: Kind) -> Option<u16> {
        match (self, kind) {
            (Self::Error | Self::Deny | Self::DenyByStatus, Kind::SubstituteAllowed) => None,
            (Self::Allow, Kind::SubstituteDenied) => None,
            // A denial by local counts is reported in the body.
            (Self::Local, Kind::SubstituteDenied) => Some(200),
            (_, Kind::SubstituteDenied) => Some(503),
            (Self::DenyByStatus, Kind::Denied) => Some(429),
            _ => Some(200),
        }
    }
}

fn kind(reply: &Reply) -> Kind {
    match reply.status {
        200 => {
            let answer = reply.json();
            let is_substitute = answer["rules"][0]["substitute"].as_bool().unwrap_or_default();
            match (answer["allowed"].as_bool().unwrap(), is_substitute) {
                (true, false) => Kind::Allowed,
                (false, false) => Kind::Denied,
                (true, true) => Kind::SubstituteAllowed,
                (false, true) => Kind::SubstituteDenied,
            }
        }
        status => {
            assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{reply:?}");
            let wait: u64 = reply.header("retry-after").expect("a Retry-After").parse().unwrap();
            assert!(wait >= 1, "{reply:?}");
            if status == 503 { Kind::SubstituteDenied } else { Kind::Denied }
        }
    }
}
