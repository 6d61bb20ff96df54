//! Texts that must not be printed.

use std::fmt;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use subtle::ConstantTimeEq;

/// A password, a token, or an address that contains one. Its `Debug` output hides the text.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Reads a secret from a file, without trailing line ends.
    pub(crate) fn read(path: &Path) -> std::io::Result<Self> {
        let text = fs::read_to_string(path)?;
        Ok(Self(text.trim_end_matches(['\r', '\n']).to_owned()))
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `given` equals the secret, in a time that depends on their lengths only.
    pub(crate) fn is(&self, given: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(given).into()
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}
