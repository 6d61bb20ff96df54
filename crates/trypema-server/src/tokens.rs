//! Who may look at rules and counters, and who may change them.

use thiserror::Error;

use crate::secret::Secret;

/// What somebody may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Look at everything.
    Reader,
    /// Change it, too.
    Editor,
}

/// Everybody who was given a token.
#[derive(Debug, Clone, Default)]
pub struct Tokens(Vec<Token>);

#[derive(Debug, Clone)]
struct Token {
    /// As history tells it.
    name: String,
    role: Role,
    secret: Secret,
}

/// Somebody who may do something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Actor {
    pub(crate) name: String,
    pub(crate) role: Role,
}

/// Names are told in logs and in history.
const MAX_NAME: usize = 64;

/// What is wrong with tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum InvalidTokens {
    #[error("is empty")]
    Empty,
    #[error("a name needs 1 to {MAX_NAME} letters, digits, `_`, `-`, `.` and `@`, as in `ann:TOKEN`")]
    Name,
    #[error("the same token is given twice")]
    Repeated,
}

impl Tokens {
    /// Adds the tokens of a text: separated by commas or line ends, each with or without a name, as in `ann:TOKEN`.
    pub(crate) fn add(&mut self, text: &Secret, role: Role) -> Result<(), InvalidTokens> {
        for part in text.reveal().split([',', '\n']).map(str::trim) {
            let (name, token) = match part.split_once(':') {
                Some((name, token)) => (name.trim(), token.trim()),
                None => (if role == Role::Editor { "editor" } else { "reader" }, part),
            };
            let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.@".contains(&byte);
            if token.is_empty() {
                return Err(InvalidTokens::Empty);
            }
            if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(is_fine) {
                return Err(InvalidTokens::Name);
            }
            if self.find(token.as_bytes()).is_some() {
                return Err(InvalidTokens::Repeated);
            }
            self.0.push(Token { name: name.to_owned(), role, secret: Secret::from(token) });
        }
        Ok(())
    }

    /// Whose token this is. All are compared, each in the same time wherever they differ.
    pub(crate) fn find(&self, given: &[u8]) -> Option<Actor> {
        let mut found = None;
        for token in &self.0 {
            if token.secret.is(given) {
                found = Some(token);
            }
        }
        found.map(|token| Actor { name: token.name.clone(), role: token.role })
    }

    /// Whether nobody has one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether somebody may change something.
    pub(crate) fn has_editor(&self) -> bool {
        self.0.iter().any(|token| token.role == Role::Editor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(editors: &str, readers: &str) -> Result<Tokens, InvalidTokens> {
        let mut tokens = Tokens::default();
        tokens.add(&Secret::from(editors), Role::Editor)?;
        tokens.add(&Secret::from(readers), Role::Reader)?;
        Ok(tokens)
    }

    #[test]
    fn each_token_has_a_name_and_a_role() {
        let tokens = tokens("ann:one, two", "grafana:three\nbob@example.com:four").unwrap();
        let found = |token: &str| tokens.find(token.as_bytes()).map(|actor| (actor.name, actor.role));
        assert_eq!(found("one"), Some(("ann".to_owned(), Role::Editor)));
        assert_eq!(found("two"), Some(("editor".to_owned(), Role::Editor)));
        assert_eq!(found("three"), Some(("grafana".to_owned(), Role::Reader)));
        assert_eq!(found("four"), Some(("bob@example.com".to_owned(), Role::Reader)));
        for wrong in ["", "on", "onee", "ann:one", "ann", "One"] {
            assert_eq!(found(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn tokens_that_say_nothing_are_refused() {
        for (editors, readers, why) in [
            ("", "r", InvalidTokens::Empty),
            ("one,", "r", InvalidTokens::Empty),
            ("ann:", "r", InvalidTokens::Empty),
            (":one", "r", InvalidTokens::Name),
            ("a b:one", "r", InvalidTokens::Name),
            ("one", "one", InvalidTokens::Repeated),
        ] {
            assert_eq!(tokens(editors, readers).map(drop), Err(why), "{editors} {readers}");
        }
    }
}
