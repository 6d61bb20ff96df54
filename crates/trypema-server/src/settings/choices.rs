//! The values of settings that have a few, each with one name.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use clap::ValueEnum;
use serde::Deserialize;
use trypema::http::HeaderStyle;

/// Defines an enum whose values have the same names in flags, in the file, in the help and in the log.
macro_rules! choices {
    ($($(#[$about:meta])* $name:ident { $($(#[$help:meta])* $value:ident = $text:literal,)+ })+) => { $(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
        #[allow(missing_docs, reason = "some names say it")]
        pub enum $name {
            $($(#[$help])* #[value(name = $text)] #[serde(rename = $text)] $value,)+
        }

        impl $name {
            /// Returns the name, as settings have it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    )+ };
}

choices! {
    /// The provider of counters.
    Provider {
        /// In this process
        Memory = "memory",
        /// In Redis, shared by all servers
        Redis = "redis",
        /// Leased from Redis, spent locally
        Hybrid = "hybrid",
    }

    /// The decision while Redis is unreachable.
    FailurePolicy {
        /// Answer 503
        Error = "error",
        /// Allow the request
        Allow = "allow",
        /// Deny the request
        Deny = "deny",
        /// Count in this process, with this server's share of the limit
        Local = "local",
    }

    /// The format of logs.
    LogFormat {
        /// Text for people
        Pretty = "pretty",
        /// One JSON object per line
        Json = "json",
    }

    /// The log level.
    LogLevel {
        Error = "error",
        Warn = "warn",
        Info = "info",
        Debug = "debug",
        Trace = "trace",
    }

    /// The denied requests that are logged at level `info`.
    LogDenials {
        /// None
        Off = "off",
        /// Up to ten a second, and the number of those left out
        Sampled = "sampled",
        /// All
        All = "all",
    }
}

/// Headers that report the remaining units to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum HeaderSetting {
    /// RateLimit and RateLimit-Policy (IETF draft 10)
    Standard,
    /// X-RateLimit-Limit, -Remaining and -Reset
    #[serde(rename = "x-ratelimit")]
    XRateLimit,
    /// No headers
    None,
}

impl From<HeaderSetting> for HeaderStyle {
    fn from(setting: HeaderSetting) -> Self {
        match setting {
            HeaderSetting::Standard => Self::Standard,
            HeaderSetting::XRateLimit => Self::XRateLimit,
            HeaderSetting::None => Self::None,
        }
    }
}

/// The address of the administration listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum AdminListen {
    /// This address. If it cannot be bound, the server does not start.
    At(SocketAddr),
    /// No administration.
    Off,
}

impl AdminListen {
    /// The default address. If it cannot be bound, the server starts without administration.
    pub const DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);
}

impl FromStr for AdminListen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        text.parse().map(Self::At).map_err(|_| "need ADDRESS:PORT, as in 127.0.0.1:8081, or `off`".to_owned())
    }
}

impl TryFrom<String> for AdminListen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}
