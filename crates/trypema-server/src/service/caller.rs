//! Callers and their permissions: callers check and reserve, readers read, admins also change.

use std::net::IpAddr;

use crate::logins::LoginGuard;
use crate::refusal::{Permission, Refusal};
use crate::tokens::{Actor, SharedTokens, TokenRole};

/// The tokens of one listener, and its limit on failed logins.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) tokens: SharedTokens,
    pub(crate) guard: LoginGuard,
}

/// A caller that was admitted to operations of one kind.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    permission: Permission,
    /// The owner of the caller's token, if it needed one.
    actor: Option<Actor>,
}

impl Caller {
    /// Returns a trusted proxy, which may check without a token.
    pub(crate) fn proxy() -> Self {
        Self { permission: Permission::Decide, actor: None }
    }

    /// Returns the name of the token's owner, for logs and the history of changes.
    pub(crate) fn name(&self) -> &str {
        self.actor.as_ref().map_or("", |actor| &actor.name)
    }

    /// Fails if the caller was admitted to other operations.
    pub(super) fn require(&self, needed: Permission) -> Result<(), Refusal> {
        match (self.permission, needed) {
            (Permission::Decide, Permission::Decide) | (Permission::Read, Permission::Read) => Ok(()),
            (Permission::Change, Permission::Read | Permission::Change) => Ok(()),
            _ => Err(Refusal::Forbidden("this token is for other operations")),
        }
    }
}

impl Access {
    /// Admits a caller to operations of one kind. `peer` is its address, `token` what it has sent.
    ///
    /// A request without a token is refused but not counted as a failed login, because it is not a guess. A valid
    /// token is accepted however often its address has failed, so that no client with the same address can lock the
    /// administrator out.
    pub(crate) fn admit(
        &self,
        needed: Permission,
        peer: IpAddr,
        token: Option<&[u8]>,
    ) -> Result<Caller, Refusal> {
        let is_open = match needed {
            Permission::Open => true,
            Permission::Decide => !self.tokens.load().has_callers(),
            Permission::Read | Permission::Change => false,
        };
        if is_open {
            return Ok(Caller { permission: needed, actor: None });
        }
        let actor = self.authenticate(peer, token.ok_or(Refusal::NoToken(needed))?)?;
        let forbidden = match (needed, actor.role) {
            (Permission::Decide, TokenRole::Reader | TokenRole::Admin) => {
                "this needs a caller token (caller_token); the tokens of admins and readers are for administration"
            }
            (Permission::Read, TokenRole::Caller) => {
                "a caller token cannot do this; use a reader token or an admin token"
            }
            (Permission::Change, TokenRole::Caller) => "a caller token cannot do this; use an admin token",
            (Permission::Change, TokenRole::Reader) => "a reader token cannot do this; use an admin token",
            (Permission::Open, _)
            | (Permission::Decide, TokenRole::Caller)
            | (Permission::Read, TokenRole::Reader | TokenRole::Admin)
            | (Permission::Change, TokenRole::Admin) => {
                return Ok(Caller { permission: needed, actor: Some(actor) });
            }
        };
        Err(Refusal::Forbidden(forbidden))
    }

    /// Whether a token is a reader's or an admin's. Failures are not counted: health probes with an old token
    /// must not count as failed logins.
    pub(crate) fn is_reader(&self, token: Option<&[u8]>) -> bool {
        let tokens = self.tokens.load();
        let actor = token.and_then(|token| tokens.find(token));
        actor.is_some_and(|actor| actor.role != TokenRole::Caller)
    }

    /// Returns the owner of a token.
    fn authenticate(&self, peer: IpAddr, token: &[u8]) -> Result<Actor, Refusal> {
        let tokens = self.tokens.load();
        match tokens.find(token) {
            Some(actor) => Ok(actor.clone()),
            None if tokens.is_empty() => Err(Refusal::NoTokens),
            None => Err(self.guard.failed(peer).map_or(Refusal::UnknownToken, Refusal::TooManyLogins)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arc_swap::ArcSwap;

    use super::*;
    use crate::secret::Secret;
    use crate::tokens::Tokens;

    const PERMISSIONS: [Permission; 3] = [Permission::Decide, Permission::Read, Permission::Change];

    fn token(role: &str) -> String {
        format!("{role}-0123456789abcdef")
    }

    fn access() -> Access {
        let mut tokens = Tokens::default();
        for (name, role) in
            [("caller", TokenRole::Caller), ("reader", TokenRole::Reader), ("admin", TokenRole::Admin)]
        {
            tokens.add(&Secret::from(&*token(name)), role).unwrap();
        }
        Access {
            tokens: Arc::new(ArcSwap::from_pointee(tokens)),
            guard: LoginGuard::new("requests", None, Arc::default()).unwrap(),
        }
    }

    #[test]
    fn a_token_admits_to_its_operations_and_to_no_others() {
        let (access, peer) = (access(), IpAddr::from([127, 0, 0, 1]));
        for (role, admitted) in [
            ("caller", [true, false, false]),
            ("reader", [false, true, false]),
            ("admin", [false, true, true]),
        ] {
            for (needed, is_admitted) in PERMISSIONS.into_iter().zip(admitted) {
                let caller = access.admit(needed, peer, Some(token(role).as_bytes()));
                assert_eq!(caller.is_ok(), is_admitted, "{role} {needed:?}");
                assert!(is_admitted || matches!(caller, Err(Refusal::Forbidden(_))));
            }
        }
        assert_eq!(
            access.admit(Permission::Read, peer, None).err(),
            Some(Refusal::NoToken(Permission::Read))
        );
        assert_eq!(access.admit(Permission::Read, peer, Some(b"guess")).err(), Some(Refusal::UnknownToken));
    }

    #[test]
    fn operations_need_the_permission_that_their_caller_was_admitted_with() {
        let (access, peer) = (access(), IpAddr::from([127, 0, 0, 1]));
        let permitted = |role: &str, admitted: Permission| {
            let caller = access.admit(admitted, peer, Some(token(role).as_bytes())).unwrap();
            PERMISSIONS.map(|needed| caller.require(needed).is_ok())
        };
        assert_eq!(permitted("caller", Permission::Decide), [true, false, false]);
        assert_eq!(permitted("reader", Permission::Read), [false, true, false]);
        assert_eq!(permitted("admin", Permission::Change), [false, true, true]);
    }
}
