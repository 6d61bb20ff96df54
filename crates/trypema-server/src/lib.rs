//! The rate limiter as a server. The binary `trypema` only parses the command line and calls this library;
//! tests call the library directly.
//!
//! ```text
//!  HTTP, forward-auth          front/     a request of some protocol → attributes, cost → answer     translate only
//!         │
//!      Service                service/   permission, engine, metrics, denial log                    every decision
//!         │
//!       App                   app.rs     one engine, its metrics, whether it is ready
//!         │
//!  trypema::rules::Engine                memory, Redis or hybrid
//! ```
//!
//! A front end translates each request of its protocol into an `OwnedRequest`, passes it in an operation to
//! `Service::call`, and translates the answer back. It contains no decision logic.

#![cfg(feature = "service")]

mod allowed_origins;
mod app;
mod attributes;
mod background_tasks;
mod background_worker;
mod certificate_watch;
pub mod cli;
mod clock;
mod config;
mod denial_log;
mod deny_status;
mod forward_auth;
mod front;
mod key_hashing;
mod listeners;
mod log;
mod logins;
mod metrics;
mod mode;
#[cfg_attr(
    not(feature = "unstable-testkit"),
    allow(
        dead_code,
        unreachable_pub,
        unused_imports,
        reason = "the testkit needs them, and front ends with streams will"
    )
)]
mod net;
mod permission_watch;
mod provider;
mod refusal;
mod rule_watcher;
mod rules;
mod secret;
mod server;
mod service;
mod settings;
mod spans;
mod start_error;
mod store_watch;
#[cfg(feature = "unstable-testkit")]
#[doc(hidden)]
pub mod testkit;
mod token_file;
mod tokens;

pub use app::App;
pub use config::{Config, RedisConfig, Tls};
pub use listeners::AdminAddress;
pub use rules::{DatabaseChoice, OpenError, RulesSource};
pub use secret::{Secret, SecretSource};
pub use server::{Interrupted, Reload, Server};
pub use settings::{
    AdminListen, FailurePolicy, InvalidConfig, InvalidSetting, LogDenials, LogFormat, LogLevel, Provider,
    SettingOrigin, Settings, Values,
};
pub use start_error::StartError;
pub use token_file::{RuntimeDirectory, TokenFileError};
pub use tokens::Tokens;
