//! Makes everything from the row of a setting: the fields, the flag with its help, the variable, the key of the
//! file, the precedence of the given values, the default, the check of the bounds, and the row of docs/server.md.

use std::fmt::Display;
use std::ops::{Bound, RangeBounds};

use super::{InvalidSetting, Settings};

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

        /// The rows, for docs/server.md.
        fn rows() -> Vec<table::Row> {
            [$($(
                table::Row {
                    name: stringify!($name),
                    default: table::shown(&[$(&$default)? $(&$shown)?]),
                    help: $help,
                    bounds: None $(.or(Some(table::bounds_text::<$type>(&$bounds, $value))))?,
                },
                $(table::Row { name: stringify!($file), default: None, help: $file_help, bounds: None },)?
            )*)*].into()
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

/// What docs/server.md says of a setting.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) default: Option<String>,
    pub(super) help: &'static str,
    pub(super) bounds: Option<String>,
}

impl Settings {
    /// Returns the table of all settings in docs/server.md.
    pub fn documentation() -> String {
        let command = <Self as clap::Args>::augment_args(clap::Command::new("trypema"));
        let choices = |name: &str| {
            let argument = command.get_arguments().find(|argument| argument.get_id() == name);
            let values = argument.into_iter().flat_map(clap::Arg::get_possible_values);
            let names: Vec<String> = values.map(|value| format!("`{}`", value.get_name())).collect();
            (!names.is_empty()).then(|| names.join(", "))
        };
        let mut table = "| setting | default | |\n| --- | --- | --- |\n".to_owned();
        for Row { name, default, help, bounds } in super::rows() {
            let default = default.map_or_else(String::new, |default| format!("{default} "));
            let notes: Vec<String> =
                [Some(help.to_owned()), bounds, choices(name)].into_iter().flatten().collect();
            table.push_str(&format!("| `{name}` | {default}| {} |\n", notes.join("; ")));
        }
        table
    }
}

/// Returns the environment variable of a setting.
pub(crate) fn variable(name: &str) -> String {
    format!("TRYPEMA_{}", name.to_uppercase())
}

/// Returns the text of a flag in `--help`.
pub(super) fn help(text: &str, default: &[&dyn Display]) -> String {
    shown(default).map_or_else(|| text.to_owned(), |default| format!("{text} [default: {default}]"))
}

/// Returns the text of the default, if there is one.
pub(super) fn shown(default: &[&dyn Display]) -> Option<String> {
    default.first().map(ToString::to_string)
}

pub(super) fn check<T: PartialOrd + Display>(
    setting: &'static str,
    value: &T,
    bounds: impl RangeBounds<T>,
    unit: &str,
) -> Result<(), InvalidSetting> {
    if bounds.contains(value) {
        return Ok(());
    }
    Err(InvalidSetting::new(setting, format!("need {}", bounds_text(&bounds, unit))))
}

/// Describes bounds. `unit` is the name of the value in the help; only `BYTES` is one.
pub(super) fn bounds_text<T: Display>(bounds: &impl RangeBounds<T>, unit: &str) -> String {
    let unit = if unit == "BYTES" { " bytes" } else { "" };
    match (bounds.start_bound(), bounds.end_bound()) {
        (Bound::Included(min), Bound::Included(max)) => format!("{min} to {max}{unit}"),
        (Bound::Included(min), _) => format!("at least {min}{unit}"),
        (_, Bound::Included(max)) => format!("at most {max}{unit}"),
        _ => "any".to_owned(),
    }
}
