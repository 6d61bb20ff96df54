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

/// A command line without the settings whose values are invalid.
pub(super) struct Parsed {
    pub(super) matches: ArgMatches,
    pub(super) invalid: InvalidConfig,
}

/// Parses a command line. Clap stops at the first invalid value, so each is removed and the rest is parsed again.
pub(super) fn parse(mut command: Command, mut arguments: Vec<OsString>) -> Result<Parsed, Error> {
    let mut invalid = InvalidConfig::default();
    loop {
        let error = match command.clone().try_get_matches_from(&arguments) {
            Ok(matches) => return Ok(Parsed { matches, invalid }),
            Err(error) => error,
        };
        let flag = flag_of(&error).filter(|_| arguments.get(1).is_some_and(|name| name == "serve"));
        let Some(flag) = flag else { return Err(error) };
        let id = setting_of(&flag);
        let name = if remove_flag(&mut arguments, &flag) {
            flag
        } else {
            let Some(variable) = variable_of(&command, &id) else { return Err(error) };
            let without = |serve: Command| serve.mut_arg(&id, |argument| argument.env(None));
            command = command.mut_subcommand("serve", without);
            variable
        };
        let origin = Some(SettingOrigin::Argument(name));
        invalid.add(InvalidSetting { origin, ..InvalidSetting::new(id, reason_of(&error)) });
    }
}

/// Removes a flag with its value. Returns whether it was there.
fn remove_flag(arguments: &mut Vec<OsString>, flag: &str) -> bool {
    let with_value = format!("{flag}=");
    let is_flag =
        |text: &OsString| text == flag || text.to_str().is_some_and(|text| text.starts_with(&with_value));
    let Some(index) = arguments.iter().position(is_flag) else { return false };
    let is_alone = arguments.remove(index) == *flag;
    let is_value = |text: &OsString| !text.to_str().is_some_and(|text| text.starts_with("--"));
    if is_alone && arguments.get(index).is_some_and(is_value) {
        arguments.remove(index);
    }
    true
}

/// Returns the environment variable of a setting.
fn variable_of(command: &Command, id: &str) -> Option<String> {
    let mut settings = command.find_subcommand("serve")?.get_arguments();
    Some(settings.find(|argument| argument.get_id() == id)?.get_env()?.to_str()?.to_owned())
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
