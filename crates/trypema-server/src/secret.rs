//! Texts that must not be printed.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use subtle::ConstantTimeEq;

/// A password, a token, or an address that contains one. Its `Debug` output hides the text.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

/// A setting that is given as a secret, or as a file that holds it.
#[derive(Debug, Clone)]
pub enum SecretSource {
    /// This secret.
    Given(Secret),
    /// The secret in this file.
    InFile(PathBuf),
}

impl SecretSource {
    /// Returns the source, if there is one. Refuses two.
    pub(crate) fn of(given: Option<Secret>, file: Option<PathBuf>) -> Result<Option<Self>, &'static str> {
        match (given, file) {
            (Some(_), Some(_)) => Err("set either the value or its _file variant, not both"),
            (Some(given), None) => Ok(Some(Self::Given(given))),
            (None, file) => Ok(file.map(Self::InFile)),
        }
    }

    /// Returns the secret. The error names the file.
    pub(crate) fn read(&self) -> Result<Secret, String> {
        match self {
            Self::Given(secret) => Ok(secret.clone()),
            Self::InFile(file) => Secret::read(file).map_err(|error| format!("{}: {error}", file.display())),
        }
    }
}

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
