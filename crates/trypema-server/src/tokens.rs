//! The tokens of callers, readers and admins.

use std::sync::Arc;

use arc_swap::ArcSwap;
use thiserror::Error;

use crate::secret::Secret;

/// The permissions of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenRole {
    /// May check and reserve, and nothing else.
    Caller,
    /// May read everything of administration.
    Reader,
    /// May also change everything of administration.
    Admin,
}

/// The tokens in force. A reload replaces them.
pub(crate) type SharedTokens = Arc<ArcSwap<Tokens>>;

/// All configured tokens.
#[derive(Debug, Clone, Default)]
pub struct Tokens(Vec<Token>);

#[derive(Debug, Clone)]
struct Token {
    owner: Actor,
    secret: Secret,
}

/// The owner of a valid token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Actor {
    /// The name that history and logs show.
    pub(crate) name: Arc<str>,
    pub(crate) role: TokenRole,
}

/// The maximum length of a name, because logs and the history contain it.
const MAX_NAME: usize = 64;
/// The minimum length of a configured token: 16 random letters and digits have about 95 bits.
const MIN_TOKEN: usize = 16;

/// The reason why tokens are invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum InvalidTokens {
    #[error("is empty")]
    Empty,
    #[error("a token has no spaces, control characters or letters beyond ASCII")]
    Token,
    #[error("a token needs at least {MIN_TOKEN} characters; `openssl rand -hex 32` makes a good one")]
    Short,
    #[error(
        "a line is a token, or a name and a token; a name needs 1 to {MAX_NAME} letters, digits, `_`, `-`, `.` and `@`"
    )]
    Name,
    #[error("the same token is given twice")]
    Repeated,
    #[error("a caller token must differ from every admin token and reader token")]
    Shared,
}

impl TokenRole {
    /// Returns the name of an owner whose token has none.
    fn default_name(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Reader => "reader",
            Self::Admin => "admin",
        }
    }
}

impl Tokens {
    /// Adds one token, named after its role.
    pub(crate) fn add(&mut self, token: &Secret, role: TokenRole) -> Result<(), InvalidTokens> {
        self.add_named(role.default_name(), token.reveal(), role)
    }

    /// Adds the tokens of a file: one per line, with an optional name before it, as in `ann TOKEN`.
    pub(crate) fn add_lines(&mut self, text: &Secret, role: TokenRole) -> Result<(), InvalidTokens> {
        let lines = text.reveal().lines().map(str::trim).filter(|line| !line.is_empty());
        let known = self.0.len();
        for line in lines {
            match line.split_once(char::is_whitespace) {
                Some((name, token)) => self.add_named(name, token.trim_start(), role)?,
                None => self.add(&Secret::from(line), role)?,
            }
        }
        if self.0.len() == known { Err(InvalidTokens::Empty) } else { Ok(()) }
    }

    fn add_named(&mut self, name: &str, token: &str, role: TokenRole) -> Result<(), InvalidTokens> {
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.@".contains(&byte);
        if token.is_empty() {
            return Err(InvalidTokens::Empty);
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidTokens::Token);
        }
        if token.len() < MIN_TOKEN {
            return Err(InvalidTokens::Short);
        }
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(is_fine) {
            return Err(InvalidTokens::Name);
        }
        if let Some(owner) = self.find(token.as_bytes()) {
            let is_shared = (owner.role == TokenRole::Caller) != (role == TokenRole::Caller);
            return Err(if is_shared { InvalidTokens::Shared } else { InvalidTokens::Repeated });
        }
        let owner = Actor { name: name.into(), role };
        self.0.push(Token { owner, secret: Secret::from(token) });
        Ok(())
    }

    /// Returns the same tokens, with those for administration of `others` if there are none: a generated token stays in
    /// force when the tokens of callers are read again.
    pub(crate) fn or_administrators_of(mut self, others: &Self) -> Self {
        if !self.has_administrators() {
            let administrators = others.0.iter().filter(|token| token.owner.role != TokenRole::Caller);
            self.0.extend(administrators.cloned());
        }
        self
    }

    /// Returns the number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the owner of a token. Compares all tokens, each in constant time.
    pub(crate) fn find(&self, given: &[u8]) -> Option<&Actor> {
        let mut found = None;
        for token in &self.0 {
            if token.secret.is(given) {
                found = Some(&token.owner);
            }
        }
        found
    }

    /// Whether there is a caller token.
    pub(crate) fn has_callers(&self) -> bool {
        self.0.iter().any(|token| token.owner.role == TokenRole::Caller)
    }

    /// Whether there is a token for administration: a reader's or an admin's.
    pub(crate) fn has_administrators(&self) -> bool {
        self.0.iter().any(|token| token.owner.role != TokenRole::Caller)
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(admins: &str, readers: &str) -> Result<Tokens, InvalidTokens> {
        let mut tokens = Tokens::default();
        tokens.add_lines(&Secret::from(admins), TokenRole::Admin)?;
        tokens.add_lines(&Secret::from(readers), TokenRole::Reader)?;
        Ok(tokens)
    }

    #[test]
    fn each_token_has_a_name_and_a_role() {
        let admins = "ann token-number-one\n token-number-two,2:x \n\n";
        let readers = "grafana\ttoken-number-three\r\nbob@example.com  token-number-four\n";
        let tokens = tokens(admins, readers).unwrap();
        let found = |token: &str| tokens.find(token.as_bytes()).map(|actor| (actor.name.clone(), actor.role));
        assert_eq!(found("token-number-one"), Some(("ann".into(), TokenRole::Admin)));
        assert_eq!(found("token-number-two,2:x"), Some(("admin".into(), TokenRole::Admin)));
        assert_eq!(found("token-number-three"), Some(("grafana".into(), TokenRole::Reader)));
        assert_eq!(found("token-number-four"), Some(("bob@example.com".into(), TokenRole::Reader)));
        for wrong in
            ["", "token-number-on", "token-number-onee", "ann token-number-one", "ann", "Token-number-one"]
        {
            assert_eq!(found(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn tokens_that_say_nothing_are_refused() {
        for (admins, readers, why) in [
            ("", "r", InvalidTokens::Empty),
            (" \n", "r", InvalidTokens::Empty),
            ("ann one two", "r", InvalidTokens::Token),
            ("t\u{e4}st", "r", InvalidTokens::Token),
            ("123456789012345", "r", InvalidTokens::Short),
            ("ann 123456789012345", "r", InvalidTokens::Short),
            ("1234567890123456", "123456789012345", InvalidTokens::Short),
            ("a:b 1234567890123456", "r", InvalidTokens::Name),
            ("1234567890123456", "1234567890123456", InvalidTokens::Repeated),
        ] {
            assert_eq!(tokens(admins, readers).map(drop), Err(why), "{admins} {readers}");
        }
        assert_eq!(Tokens::default().add(&Secret::from("a b"), TokenRole::Reader), Err(InvalidTokens::Token));
        assert_eq!(Tokens::default().add(&Secret::from(""), TokenRole::Reader), Err(InvalidTokens::Empty));
    }
    #[test]
    fn a_caller_token_is_no_token_of_administration() {
        for role in [TokenRole::Admin, TokenRole::Reader] {
            let mut tokens = Tokens::default();
            tokens.add(&Secret::from("token-number-one"), role).unwrap();
            assert_eq!((tokens.has_callers(), tokens.has_administrators()), (false, true));
            let callers = Secret::from("shop token-number-two\nbatch token-number-one");
            assert_eq!(tokens.add_lines(&callers, TokenRole::Caller), Err(InvalidTokens::Shared));
        }
        let mut tokens = Tokens::default();
        let callers = Secret::from("shop token-number-one\ntoken-number-two");
        tokens.add_lines(&callers, TokenRole::Caller).unwrap();
        assert_eq!((tokens.has_callers(), tokens.has_administrators()), (true, false));
        for (token, name) in [("token-number-one", "shop"), ("token-number-two", "caller")] {
            let owner = Actor { name: name.into(), role: TokenRole::Caller };
            assert_eq!(tokens.find(token.as_bytes()), Some(&owner));
        }
        let again = Secret::from("token-number-one");
        assert_eq!(tokens.add(&again, TokenRole::Caller), Err(InvalidTokens::Repeated));
        assert_eq!(tokens.add(&again, TokenRole::Admin), Err(InvalidTokens::Shared));
    }
}
