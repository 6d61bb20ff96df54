//! Parses the arguments of `trypema serve`, and reports all invalid values at once.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, Error};

use crate::settings::{InvalidConfig, InvalidSetting, SettingOrigin, variable};

/// The settings that flags and environment variables give.
#[derive(Debug, Clone, Default)]
pub(super) struct Given {
    /// The settings whose values are invalid.
    pub(super) invalid: InvalidConfig,
    /// The flag or the variable of each setting, by the name of the setting.
    pub(super) origins: BTreeMap<String, SettingOrigin>,
}

/// A command line that is being parsed.
pub(super) struct Arguments {
    command: Command,
    arguments: Vec<OsString>,
}

/// A command line without the settings whose values are invalid.
pub(super) struct Parsed {
    pub(super) matches: ArgMatches,
    pub(super) invalid: InvalidConfig,
}

impl Arguments {
    pub(super) fn new(command: Command, arguments: impl Iterator<Item = OsString>) -> Self {
        Self { command, arguments: arguments.collect() }
    }

    /// Parses the command line. Clap stops at the first invalid value, so each is removed and the rest is
    /// parsed again.
    pub(super) fn parse(mut self) -> Result<Parsed, Error> {
        let mut invalid = InvalidConfig::default();
        loop {
            let error = match self.command.clone().try_get_matches_from(&self.arguments) {
                Ok(matches) => return Ok(Parsed { matches, invalid }),
                Err(error) => error,
            };
            let flag = flag_of(&error).filter(|_| self.arguments.get(1).is_some_and(|name| name == "serve"));
            let Some(flag) = flag else { return Err(error) };
            let Some(origin) = self.remove(&flag) else { return Err(error) };
            let problem = InvalidSetting::new(setting_of(&flag), reason_of(&error));
            invalid.add(InvalidSetting { origin: Some(origin), ..problem });
        }
    }

    /// Removes a flag, or the variable if there is no such flag. Returns what was removed.
    fn remove(&mut self, flag: &str) -> Option<SettingOrigin> {
        let with_value = format!("{flag}=");
        let is_flag =
            |text: &OsString| text == flag || text.to_str().is_some_and(|text| text.starts_with(&with_value));
        if let Some(index) = self.arguments.iter().position(is_flag) {
            let is_alone = self.arguments.remove(index) == *flag;
            let is_value = |text: &OsString| !text.to_str().is_some_and(|text| text.starts_with("--"));
            if is_alone && self.arguments.get(index).is_some_and(is_value) {
                self.arguments.remove(index);
            }
            return Some(SettingOrigin::Argument(flag.to_owned()));
        }
        let id = setting_of(flag);
        let serve = self.command.find_subcommand("serve")?;
        let argument = serve.get_arguments().find(|argument| argument.get_id().as_str() == id)?;
        let variable = argument.get_env()?.to_str()?.to_owned();
        let command = self.command.clone();
        self.command =
            command.mut_subcommand("serve", |serve| serve.mut_arg(id, |argument| argument.env(None)));
        Some(SettingOrigin::Argument(variable))
    }
}

/// Returns the flag whose value is invalid, if that is the error.
fn flag_of(error: &Error) -> Option<String> {
    if !matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue) {
        return None;
    }
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return None };
    argument.split([' ', '=']).next().filter(|flag| flag.starts_with("--")).map(str::to_owned)
}

fn setting_of(flag: &str) -> String {
    flag.trim_start_matches('-').replace('-', "_")
}

fn reason_of(error: &Error) -> String {
    let given = match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => value.as_str(),
        _ => "",
    };
    if let Some(source) = error.source() {
        let reason = source.to_string();
        return if reason.contains(given) { reason } else { format!("invalid value {given:?}: {reason}") };
    }
    match error.get(ContextKind::ValidValue) {
        _ if given.is_empty() => "need a value".to_owned(),
        Some(ContextValue::Strings(values)) => format!("need one of {}, not {given:?}", values.join(", ")),
        _ => format!("invalid value {given:?}"),
    }
}

/// Returns the flag or the variable of each setting that is given by one.
pub(super) fn origins(serve: &ArgMatches) -> BTreeMap<String, SettingOrigin> {
    let ids = serve.ids().map(clap::Id::as_str);
    let given = ids.filter_map(|id| {
        let name = match serve.value_source(id)? {
            ValueSource::CommandLine => format!("--{}", id.replace('_', "-")),
            ValueSource::EnvVariable => variable(id),
            _ => return None,
        };
        Some((id.to_owned(), SettingOrigin::Argument(name)))
    });
    given.collect()
}
