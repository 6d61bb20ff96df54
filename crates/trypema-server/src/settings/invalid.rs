//! Invalid settings, and the places where they are given.

use std::borrow::Cow;
use std::fmt;

/// The error of an invalid configuration, with all invalid settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InvalidConfig {
    problems: Vec<InvalidSetting>,
}

/// An invalid setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidSetting {
    /// The name of the setting, or the path to a field of `forward_auth`.
    pub setting: Cow<'static, str>,
    /// The reason why it is invalid.
    pub reason: String,
    /// The place where it is given, if that is known.
    pub origin: Option<SettingOrigin>,
}

/// The place where a setting is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingOrigin {
    /// A line of the configuration file.
    File {
        /// The file.
        file: String,
        /// The line, if the problem has one.
        line: Option<u64>,
    },
    /// A flag such as `--max-keys`, or an environment variable such as `TRYPEMA_MAX_KEYS`.
    Argument(String),
}

impl InvalidSetting {
    pub(crate) fn new(setting: impl Into<Cow<'static, str>>, reason: impl Into<String>) -> Self {
        Self { setting: setting.into(), reason: reason.into(), origin: None }
    }
}

impl fmt::Display for InvalidSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(SettingOrigin::File { file, line: Some(line) }) => write!(f, "{file}:{line}: ")?,
            Some(SettingOrigin::File { file, line: None }) => write!(f, "{file}: ")?,
            Some(SettingOrigin::Argument(_)) | None => {}
        }
        if !self.setting.is_empty() {
            write!(f, "{}: ", self.setting)?;
        }
        f.write_str(&self.reason)?;
        match &self.origin {
            Some(SettingOrigin::Argument(name)) => write!(f, " (given as {name})"),
            _ => Ok(()),
        }
    }
}

impl InvalidConfig {
    /// Returns the invalid settings.
    pub fn problems(&self) -> &[InvalidSetting] {
        &self.problems
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// Adds a problem, unless the same setting, a part of it or the whole of it has one already: the second
    /// may be a consequence of the first.
    pub(crate) fn add(&mut self, problem: InvalidSetting) {
        let is_within = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let is_same = |known: &InvalidSetting| {
            is_within(&known.setting, &problem.setting) || is_within(&problem.setting, &known.setting)
        };
        if problem.setting.is_empty() || !self.problems.iter().any(is_same) {
            self.problems.push(problem);
        }
    }

    /// Adds the problem of a failed check. Returns the value of one that succeeded.
    pub(crate) fn take<T>(&mut self, checked: Result<T, InvalidSetting>) -> Option<T> {
        checked.map_err(|problem| self.add(problem)).ok()
    }

    /// Adds the problems of several checks. Returns the value if there are none.
    pub(crate) fn take_all<T>(&mut self, checked: Result<T, Self>) -> Option<T> {
        checked.map_err(|others| others.problems.into_iter().for_each(|problem| self.add(problem))).ok()
    }

    /// Sets the places of the problems that have none.
    pub(crate) fn locate(&mut self, origin_of: impl Fn(&str) -> Option<SettingOrigin>) {
        for problem in self.problems.iter_mut().filter(|problem| problem.origin.is_none()) {
            problem.origin = origin_of(&problem.setting);
        }
    }
}

impl fmt::Display for InvalidConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.problems.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for InvalidConfig {}
