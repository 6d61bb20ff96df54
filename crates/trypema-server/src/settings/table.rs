//! Makes everything from the row of a setting: the fields, the flag with its help, the variable, the key of the
//! file, the precedence of the given values, the default, and the check of the bounds. The table in docs/server.md
//! is generated from the help.

use std::fmt::Display;
use std::ops::{Bound, RangeBounds};

use super::InvalidSetting;

/// Defines [`Settings`] and [`Values`](super::Values) by a table in sections, which are headings of the help.
/// The forms of a row are:
///
/// ```text
/// NAME: TYPE = DEFAULT, in BOUNDS, "VALUE": "help";
/// NAME: TYPE, default TEXT, "VALUE": "help";                          a default that the code decides
/// NAME: Secret, "VALUE": "help", or NAME_file: "help of the file";    given directly, or as a file
/// ```
macro_rules! settings {
    ($($section:literal { $(
        $(#[$attribute:meta])*
        $name:ident: $type:ty $(= $default:expr)? $(, in $bounds:expr)? $(, default $shown:expr)?,
        $value:literal: $help:literal $(, or $file:ident: $file_help:literal)?;
    )* })*) => {
        /// The settings of `trypema serve` as given. Each is a flag (`--redis-url`), a variable
        /// (`TRYPEMA_REDIS_URL`) and a key of the configuration file (`redis_url`). A flag takes precedence over
        /// a variable, and a variable over the file.
        #[derive(Debug, Clone, Default, clap::Args, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Settings {
            $($(
                #[doc = $help]
                #[arg(
                    long,
                    env = table::variable(stringify!($name)),
                    help = table::help($help, &[$(&($default))? $(&($shown))?]),
                    help_heading = $section,
                    value_name = $value
                    $(, hide_env_values = !stringify!($file).is_empty())?
                )]
                $(#[$attribute])*
                pub $name: Option<$type>,
                $(
                    #[doc = $file_help]
                    #[arg(
                        long,
                        env = table::variable(stringify!($file)),
                        help_heading = $section,
                        value_name = "FILE"
                    )]
                    pub $file: Option<PathBuf>,
                )?
            )*)*
            /// Forward-auth profiles; only in the configuration file
            #[arg(skip)]
            pub(crate) forward_auth: Option<ForwardAuthSettings>,
        }

        /// The settings that always have a value: the given one, or the default.
        #[derive(Debug, Clone)]
        pub struct Values {
            $($($(
                #[doc = $help]
                pub $name: table::first!($type, $default),
            )?)*)*
        }

        impl Settings {
            /// Returns these settings; where one is not set, that of `others`. A secret and its file are one
            /// setting.
            #[must_use]
            pub fn or(mut self, others: Self) -> Self {
                $($(
                    if self.$name.is_none() $(&& self.$file.is_none())? {
                        self.$name = others.$name;
                        $(self.$file = others.$file;)?
                    }
                )*)*
                self.forward_auth = self.forward_auth.or(others.forward_auth);
                self
            }

            /// Returns the files that hold secrets, each with its setting.
            pub(crate) fn secret_files(&self) -> Vec<(&'static str, PathBuf)> {
                let files: &[(&'static str, &Option<PathBuf>)] = &[$($($((stringify!($file), &self.$file),)?)*)*];
                files.iter().filter_map(|(setting, file)| Some((*setting, (*file).clone()?))).collect()
            }

            $($($(
                #[doc = concat!("Returns `", stringify!($name), "`, or `", stringify!($file), "`.")]
                pub(crate) fn $name(&self) -> Result<Option<SecretSource>, InvalidSetting> {
                    let source = SecretSource::of(self.$name.clone(), self.$file.clone());
                    source.map_err(|reason| InvalidSetting::new(stringify!($name), reason))
                }
            )?)*)*
        }

        impl Values {
            /// Applies the defaults. The bounds are checked by [`Values::check`].
            pub(crate) fn of(settings: &Settings) -> Self {
                Self { $($($($name: settings.$name.unwrap_or($default),)?)*)* }
            }

            /// Adds the values that are out of bounds to `invalid`.
            pub(crate) fn check(&self, invalid: &mut InvalidConfig) {
                $($($(invalid.take(table::check(stringify!($name), &self.$name, $bounds, $value));)?)*)*
            }
        }
    };
}

/// Returns the first of its arguments. The second one only says that the row has a default.
macro_rules! first {
    ($type:ty, $default:expr) => {
        $type
    };
}

pub(super) use {first, settings};

/// Returns the environment variable of a setting.
pub(crate) fn variable(name: &str) -> String {
    format!("TRYPEMA_{}", name.to_uppercase())
}

/// Returns the text of a flag in `--help`. `default` has one element, or none.
pub(super) fn help(text: &str, default: &[&dyn Display]) -> String {
    let default = default.first().map_or_else(String::new, |default| format!(" [default: {default}]"));
    [text, &default].concat()
}

/// Refuses a value that is out of bounds. `unit` is the name of the value in the help; only `BYTES` is one.
pub(super) fn check<T: PartialOrd + Display>(
    setting: &'static str,
    value: &T,
    bounds: impl RangeBounds<T>,
    unit: &str,
) -> Result<(), InvalidSetting> {
    if bounds.contains(value) {
        return Ok(());
    }
    let unit = if unit == "BYTES" { " bytes" } else { "" };
    let reason = match (bounds.start_bound(), bounds.end_bound()) {
        (Bound::Included(min), Bound::Included(max)) => format!("need {min} to {max}{unit}"),
        (Bound::Included(min), _) => format!("need at least {min}{unit}"),
        (_, Bound::Included(max)) => format!("need at most {max}{unit}"),
        _ => "out of bounds".to_owned(),
    };
    Err(InvalidSetting::new(setting, reason))
}
