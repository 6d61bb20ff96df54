//! `trypema serve`.

use std::fmt::Display;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use thiserror::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::arguments::Given;
use super::{failed, print};
use crate::config::Config;
use crate::listeners::AdminAddress;
use crate::log;
use crate::rules::RulesSource;
use crate::server::{Interrupted, Server};
use crate::settings::{LogFormat, Settings, SettingsFile, Values};
use crate::start_error::StartError;
use crate::token_file::RuntimeDirectory;

/// Run the server
///
/// Without any settings, the server uses built-in demonstration rules and keeps counters in memory. It serves
/// checks on 127.0.0.1:8080, and administration on 127.0.0.1:8081 with a generated token.
///
/// Every setting below can be given as a flag, as a variable (TRYPEMA_…), or in a YAML configuration file,
/// where `--redis-url` is `redis_url`. Flags override variables, and variables override the file. SIGHUP
/// reloads rules, tokens and certificates. SIGTERM finishes the requests in flight, then stops the server.
#[derive(Debug, clap::Args)]
pub(super) struct Serve {
    /// Configuration file (YAML)
    #[arg(long, env = "TRYPEMA_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// The origins of settings, and the invalid ones.
    #[arg(skip)]
    pub(super) given: Given,
}

impl Serve {
    pub(super) fn run(self) -> ExitCode {
        let Given { mut invalid, origins } = self.given;
        let file = self.config.as_deref().map(SettingsFile::read).unwrap_or_default();
        invalid.take_all(Err::<(), _>(file.invalid.clone()));
        let settings = self.settings.or(file.settings.clone());
        let Values { log_format: format, log_level, .. } = Values::of(&settings);
        log::start(format, log_level);
        let config = match invalid.take_all(Config::new(settings)) {
            Some(config) if invalid.is_empty() => {
                Config { runtime_directory: RuntimeDirectory::from_environment(), ..config }
            }
            _ => {
                invalid.locate(|setting| origins.get(setting).cloned().or_else(|| file.origin_of(setting)));
                return stopped_by(&invalid, format);
            }
        };
        let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return stopped_by(&error, format),
        };
        let served = runtime.block_on(serve(config, format));
        // Tasks that still run, such as a read from a file system that hangs, end with the process.
        runtime.shutdown_background();
        match served {
            Ok(()) => ExitCode::SUCCESS,
            Err(ServeError::Start(error)) if error.is_final() => stopped_by(&error, format),
            // The service manager may restart the server.
            Err(failure) => {
                stopped_by(&failure, format);
                ExitCode::FAILURE
            }
        }
    }
}

/// Prints an error in the format of the log, and returns the exit code [`FAILED`](super::FAILED).
fn stopped_by(error: &dyn Display, format: LogFormat) -> ExitCode {
    match format {
        LogFormat::Pretty => failed(error),
        LogFormat::Json => {
            tracing::error!("server: {error}");
            ExitCode::from(super::FAILED)
        }
    }
}

/// The reason why `trypema serve` ends with an error.
#[derive(Debug, Error)]
#[error(transparent)]
enum ServeError {
    Start(#[from] StartError),
    Run(#[from] Interrupted),
}

async fn serve(config: Config, format: LogFormat) -> Result<(), ServeError> {
    let signals = StopSignals::new();
    let hangups =
        listen("SIGHUP", SignalKind::hangup(), "SIGHUP does not reload rules, tokens and certificates");
    let startup_message = StartupMessage::of(&config);
    let policy = config.redis.as_ref().map(|_| config.values.on_store_failure.name());
    let server = Server::start(config, None).await?;
    log_start(&server, policy);
    if format == LogFormat::Pretty {
        startup_message.print(&server);
    }
    if let Some(mut hangups) = hangups {
        let reload = server.reload();
        tokio::spawn(async move {
            while hangups.recv().await.is_some() {
                tracing::info!("server: received SIGHUP; reloading rules, tokens and certificates");
                reload.request();
            }
        });
    }
    Ok(server.run(signals.requested()).await?)
}

/// Logs what is in force: the version, the listeners, the provider with its failure policy, and the rules.
fn log_start(server: &Server, policy: Option<&str>) {
    let (admin, state) = (server.admin(), server.app().readiness());
    let token_file = admin.and_then(|admin| admin.token_file.as_ref());
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        address = %server.address(),
        admin_address = admin.map(|admin| admin.address.to_string()),
        token_file = token_file.map(|file| file.display().to_string()),
        provider = state.provider,
        on_store_failure = policy,
        rules = state.rules,
        rules_from = state.rules_from,
        rules_revision = state.rules_revision,
        "server: listening"
    );
}

/// Listens for a signal. If that fails, logs the `consequence`.
fn listen(name: &str, kind: SignalKind, consequence: &str) -> Option<Signal> {
    let listening = signal(kind);
    listening
        .inspect_err(|error| tracing::warn!("server: cannot listen for {name} ({error}); {consequence}"))
        .ok()
}

/// The signals that stop the server.
struct StopSignals {
    terminate: Option<Signal>,
    interrupt: Option<Signal>,
}

impl StopSignals {
    fn new() -> Self {
        let consequence = "this signal ends the process without finishing requests";
        Self {
            terminate: listen("SIGTERM", SignalKind::terminate(), consequence),
            interrupt: listen("SIGINT", SignalKind::interrupt(), consequence),
        }
    }

    /// Waits for the first signal, and returns it as the reason to stop. A second signal ends the process
    /// immediately.
    async fn requested(mut self) -> &'static str {
        let reason = self.next().await;
        tokio::spawn(async move {
            let again = self.next().await;
            tracing::warn!("server: {again} while stopping; exiting without finishing requests");
            std::process::exit(1);
        });
        reason
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            () = next(&mut self.terminate) => "received SIGTERM",
            () = next(&mut self.interrupt) => "received SIGINT",
        }
    }
}

async fn next(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// The text that is printed at start.
struct StartupMessage {
    scheme: &'static str,
    rules: RulesSource,
    /// The argument of curl for the caller token, or an empty text if there is none.
    token_header: &'static str,
}

impl StartupMessage {
    fn of(config: &Config) -> Self {
        let scheme = if config.tls.is_some() { "https" } else { "http" };
        let has_callers = config.tokens.has_callers();
        let token_header =
            if has_callers { " -H \"Authorization: Bearer $TRYPEMA_CALLER_TOKEN\"" } else { "" };
        Self { scheme, rules: config.rules.clone(), token_header }
    }

    /// Prints everything in one write, so that a reader who sees the first line has the whole text.
    fn print(&self, server: &Server) {
        let url = format!("{}://{}", self.scheme, server.address());
        let admin_url = server.admin().map(|admin| format!("{}://{}", self.scheme, admin.address));
        let mut text = format!("trypema listens on {url}\n");
        if let (Some(admin), Some(admin_url)) = (server.admin(), &admin_url) {
            text.push_str(&format!("administration is on {admin_url}\n{}", token_lines(admin)));
        }
        text.push_str(&match &self.rules {
            RulesSource::File(path) => format!("rules: {}\n", path.display()),
            RulesSource::Database(_) => "rules: PostgreSQL (`trypema rules export` prints them)\n".to_owned(),
            RulesSource::BuiltIn => demonstration(&url, admin_url.as_deref(), self.token_header),
        });
        print(&text);
    }
}

/// Returns commands that demonstrate the built-in rules.
fn demonstration(url: &str, admin_url: Option<&str>, token_header: &str) -> String {
    let administration = admin_url.map_or_else(String::new, |admin_url| {
        format!(
            "
  trypema explain user=ann --server {admin_url}                  show the decision of every rule
  trypema keys reset 'per-user|user=ann' --server {admin_url}    reset the counter of ann
  curl -s {admin_url}/metrics                                    show the Prometheus metrics
"
        )
    });
    format!(
        "
Demonstration rules: 5 requests per user and minute. Repeat this command until the sixth request is denied:

  curl -i '{url}/v1/check?deny_status=429&headers=standard' -d '{{\"attributes\": {{\"user\": \"ann\"}}}}'{token_header}

  curl -s {url}/v1/check -d '{{\"attributes\": {{\"user\": \"ann\"}}}}'{token_header}              show the decision as JSON
{administration}
To use your own rules, run: trypema serve --rules rules.yaml. Press Ctrl-C to stop.
"
    )
}

/// Returns lines about a generated token. The token itself is only printed to a terminal, because other
/// readers of standard output may store it.
fn token_lines(admin: &AdminAddress) -> String {
    let file = admin.token_file.as_ref();
    let mut lines = file.map_or_else(String::new, |file| {
        format!("  token file: {} (read by `trypema` commands)\n", file.display())
    });
    if let Some(token) = admin.generated_token.as_ref().filter(|_| std::io::stdout().is_terminal()) {
        lines.push_str(&format!("  token: {}\n", token.reveal()));
    }
    lines
}
