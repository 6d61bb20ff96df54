//! The life cycle of the server: it starts, serves, reloads on request, and stops without losing a
//! response.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use thiserror::Error;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use trypema::clock::Clock;
use trypema::rules::Period;

use crate::app::App;
use crate::background_tasks::BackgroundTasks;
use crate::certificate_watch;
use crate::clock::Started;
use crate::config::{Config, TokenSources};
use crate::front::http::Api;
use crate::key_hashing::SecretError;
use crate::listeners::{AdminAddress, OpenListeners};
use crate::net::{Certificates, Descriptors, Listener, Registry};
use crate::permission_watch;
use crate::rule_watcher;
use crate::service::Service;
use crate::settings::InvalidConfig;
use crate::spans::Spans;
use crate::start_error::StartError;
use crate::store_watch;
use crate::tokens::SharedTokens;

/// The interval at which shutdown checks whether the last connection has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The time that shutdown gives idle clients to send one more request, whose response closes the connection. Without
/// it, a client may be sending when its connection is closed, and could not know whether the request was counted.
const IDLE_GRACE: Duration = Duration::from_secs(1);
/// The time that shutdown gives clients to complete a request that they have begun to send.
const REQUEST_GRACE: Duration = Duration::from_secs(1);
/// The minimum time for the last calls to Redis, even if connections have used up the whole deadline.
const FINAL_GRACE: Duration = Duration::from_millis(500);

/// The error of a background task that ended unexpectedly. The server then stops, because it could not be
/// trusted.
#[derive(Debug, Error)]
#[error("a background task ended unexpectedly; see the log")]
pub struct Interrupted;

/// A server that is bound to its addresses. It serves once it is [run](Server::run).
#[derive(Debug)]
pub struct Server {
    app: Arc<App>,
    config: Config,
    pub(crate) listeners: OpenListeners,
    pub(crate) registry: Arc<Registry>,
    certificates: Option<Arc<Certificates>>,
    /// Whether the secret of hashed attributes still has to be compared with that of other servers.
    is_secret_unknown: bool,
    reload: Reload,
}

/// A handle that makes the server reload its rules, tokens and certificates, as SIGHUP does.
#[derive(Debug, Clone, Default)]
pub struct Reload {
    rules: Arc<Notify>,
    tokens: Arc<Notify>,
    certificates: Arc<Notify>,
}

impl Reload {
    /// Requests a reload. A request during a reload causes another one.
    pub fn request(&self) {
        self.rules.notify_one();
        self.tokens.notify_one();
        self.certificates.notify_one();
    }
}

impl Server {
    /// Reads the rules, connects to the store, and binds the listeners. Tests pass a `clock`, which limits
    /// then follow.
    ///
    /// # Errors
    ///
    /// Any reason why the server cannot serve.
    pub async fn start(config: Config, clock: Option<Arc<dyn Clock>>) -> Result<Self, StartError> {
        warn_of_exposure(&config);
        let certificates = config.tls.clone().map(Certificates::load).transpose()?.map(Arc::new);
        // Boxed: rustc computes the layout of nested futures only so deep.
        let app = Arc::new(Box::pin(App::new(&config, clock.clone())).await?);
        app.metrics.tls.started(certificates.as_ref().and_then(|certificates| certificates.expires_at_s()));
        let is_secret_unknown = Box::pin(is_secret_unknown(&config)).await?;
        let listeners = OpenListeners::open(&config, clock, &app.metrics.logins)?;
        let (registry, reload) = (registry(&app, &config), Reload::default());
        Ok(Self { app, config, listeners, registry, certificates, is_secret_unknown, reload })
    }

    /// Returns the address of the check listener.
    pub fn address(&self) -> SocketAddr {
        let first = self.listeners.sockets().next();
        first.map_or(self.config.values.listen, |socket| socket.address)
    }

    /// Returns the address of the administration listener, if there is one.
    pub fn admin(&self) -> Option<&AdminAddress> {
        self.listeners.sockets().find_map(|socket| socket.admin.as_ref())
    }

    /// Returns the state that all front ends share.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Returns a handle that makes the server reload its rules, tokens and certificates.
    pub fn reload(&self) -> Reload {
        self.reload.clone()
    }

    /// Serves until `stop` returns a reason, which is logged, such as "received SIGTERM". Then finishes
    /// requests in flight, releases cancelled reservations and returns leased units to Redis, and returns.
    ///
    /// # Errors
    ///
    /// The server stopped because a background task ended.
    pub async fn run(mut self, stop: impl Future<Output = &'static str>) -> Result<(), Interrupted> {
        let mut background = self.background();
        let (spans, sending) = match self.config.collector.take() {
            Some(collector) => {
                let (spans, sending) = Spans::to(collector, Arc::clone(&self.app.metrics.spans.dropped));
                (Some(Arc::new(spans)), Some(tokio::spawn(sending)))
            }
            None => (None, None),
        };
        let Self { app, config, listeners, registry, certificates, .. } = self;
        let config = Arc::new(config);
        let api = Arc::new(Api::new(Service { app: Arc::clone(&app), spans }, &config));
        let listeners = listeners.with_protocols(&api, &registry, certificates.as_ref());
        let accept = || join_all(listeners.iter().map(Listener::accept));
        let (reason, outcome) = tokio::select! {
            _ = accept() => ("the listeners ended", Ok(())),
            reason = stop => (reason, Ok(())),
            ended = background.ended() => {
                tracing::error!("server: background task ended unexpectedly ({ended}); stopping");
                ("a background task ended", Err(Interrupted))
            }
        };
        tracing::info!(
            "server: {reason}; stopping: accepting connections for {} (shutdown_delay), then finishing requests \
             for up to {} (shutdown_deadline)",
            config.values.shutdown_delay,
            config.values.shutdown_deadline
        );
        app.drain();
        tokio::select! {
            _ = accept() => {}
            () = tokio::time::sleep(config.values.shutdown_delay.0) => {}
        }
        listeners.into_iter().for_each(Listener::drain_backlog);
        stop_all(&app, &registry, &config, sending).await;
        background.stop().await;
        app.denial_log.start_period();
        tracing::info!("server: stopped");
        outcome
    }

    /// Spawns the background tasks.
    fn background(&self) -> BackgroundTasks {
        let mut background = BackgroundTasks::default();
        let (app, registry) = (&self.app, Arc::clone(&self.registry));
        background.spawn("connection timeouts", async move { registry.run_timer().await });
        rule_watcher::spawn(&mut background, app, Arc::clone(&self.reload.rules));
        if self.config.redis.is_some() {
            let policy = self.config.values.on_store_failure.name();
            background.spawn("store watch", store_watch::watch(Arc::clone(app), policy));
        }
        if app.uses_redis() {
            background.spawn("permission watch", permission_watch::watch(Arc::clone(app)));
        }
        if let (true, Some(hashing), Some(redis)) =
            (self.is_secret_unknown, self.config.hashing.clone(), self.config.redis.clone())
        {
            background.spawn("hash secret", hashing.compare_later(redis.url, redis.prefix));
        }
        if app.denial_log.is_sampled() {
            let app = Arc::clone(app);
            background.spawn("denial log", async move { app.denial_log.run().await });
        }
        if self.config.token_sources.have_files() {
            let (sources, reload) = (self.config.token_sources.clone(), Arc::clone(&self.reload.tokens));
            let tokens = Arc::clone(&self.listeners.tokens);
            background.spawn("token reload", reload_tokens(sources, tokens, reload));
        }
        if let Some(certificates) = self.certificates.clone() {
            let reload = Arc::clone(&self.reload.certificates);
            background
                .spawn("certificate watch", certificate_watch::watch(Arc::clone(app), certificates, reload));
        }
        if let Some(work) = app.background() {
            background.spawn("lease sync", work);
        }
        background
    }
}

/// Reads the tokens again on request, forever.
async fn reload_tokens(sources: TokenSources, tokens: SharedTokens, reload: Arc<Notify>) {
    loop {
        reload.notified().await;
        let sources = sources.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let mut problems = InvalidConfig::default();
            let tokens = sources.read(&mut problems);
            if problems.is_empty() { Ok(tokens) } else { Err(problems) }
        });
        let error = match reading.await {
            Ok(Ok(read)) => {
                let read = read.or_administrators_of(&tokens.load());
                tracing::info!("server: {} tokens are in force", read.len());
                tokens.store(Arc::new(read));
                continue;
            }
            Ok(Err(problems)) => problems.to_string(),
            Err(_) => "reading them was interrupted".to_owned(),
        };
        tracing::error!("server: cannot reload the tokens ({error}); keeping the previous tokens");
    }
}

/// Warns of settings that let strangers spend the limits of others, or read secrets.
fn warn_of_exposure(config: &Config) {
    let address = config.values.listen;
    if !address.ip().to_canonical().is_loopback() && !config.tokens.has_callers() {
        tracing::warn!(
            "server: {address} (listen) can be reached from other machines, and needs no token: every client there can \
             spend the limits of others; set caller_token, or let only proxies reach it"
        );
    }
    for (setting, file) in &config.secret_files {
        let mode = fs::metadata(file).map(|metadata| metadata.permissions().mode() & 0o777);
        if let Some(mode) = mode.ok().filter(|mode| mode & 0o004 != 0) {
            let file = file.display();
            tracing::warn!(
                "server: every user can read {file} ({setting}, mode {mode:03o}); `chmod 600 {file}`"
            );
        }
    }
}

/// Compares the secret of hashed attributes with that of the other servers. Returns whether that has to be done later,
/// because Redis does not answer.
async fn is_secret_unknown(config: &Config) -> Result<bool, StartError> {
    let (Some(hashing), Some(redis)) = (&config.hashing, &config.redis) else { return Ok(false) };
    match hashing.compare(&redis.url, redis.prefix.as_ref()).await {
        Ok(()) => Ok(false),
        Err(error @ SecretError::Different) => Err(StartError::HashSecret(error)),
        Err(error) => {
            tracing::warn!(
                "store: cannot compare hash_secret with other servers ({error}); trying again later"
            );
            Ok(true)
        }
    }
}

/// Returns the registry for as many connections as the limit of open files permits.
fn registry(app: &App, config: &Config) -> Arc<Registry> {
    let max_connections = config.values.max_connections;
    let descriptors = Descriptors::raise_limit(max_connections);
    if descriptors.connections < max_connections {
        tracing::warn!(
            "net: the open-file limit is lower than max_connections={max_connections}; accepting up to {} \
             connections; raise the limit with `ulimit -n` or LimitNOFILE=",
            descriptors.connections
        );
    }
    Arc::new(Registry::new(Arc::clone(&app.metrics.connections), config, descriptors))
}

/// Waits for the last responses, then releases cancelled reservations and returns leased units to Redis, then
/// sends the last spans.
async fn stop_all(app: &App, registry: &Registry, config: &Config, sending: Option<JoinHandle<()>>) {
    let (stopping, deadline) = (Started::now(), config.values.shutdown_deadline.0);
    let left = || deadline.saturating_sub(stopping.ago()).max(FINAL_GRACE);
    let idle_grace = IDLE_GRACE.saturating_sub(config.values.shutdown_delay.0).min(deadline / 2);
    if !all_ended(registry, idle_grace).await {
        finish(registry, deadline.saturating_sub(idle_grace)).await;
    }
    let (settled, released) =
        tokio::join!(timeout(left(), app.engine().wait_for_settlements()), timeout(left(), app.release()));
    if settled.is_err() {
        tracing::warn!(
            "shutdown: could not release the reservations of cancelled requests in Redis in time; they stay until \
             their ttl or hold is over"
        );
    }
    if released.is_err() {
        let units = app.held_units();
        tracing::warn!(
            "shutdown: could not return {units} leased units to Redis in time; they count against their limits \
             until they leave the window"
        );
    }
    if let Some(sending) = sending
        && timeout(left(), sending).await.is_err()
    {
        tracing::warn!("shutdown: could not send the last spans to otlp_endpoint in time; they are lost");
    }
}

/// Closes idle connections, and waits until every connection has ended. Connections whose client is still sending get [`REQUEST_GRACE`];
/// those whose request is being answered get until `deadline`.
async fn finish(registry: &Registry, deadline: Duration) {
    registry.finish_all();
    if all_ended(registry, deadline.min(REQUEST_GRACE)).await {
        return;
    }
    registry.close_without_request();
    if all_ended(registry, deadline.saturating_sub(REQUEST_GRACE)).await {
        return;
    }
    let connections = registry.open_connections();
    tracing::warn!(
        "shutdown: requests did not finish within {} (shutdown_deadline); closing {connections} connections",
        Period(deadline)
    );
    registry.close_all();
    all_ended(registry, FINAL_GRACE).await;
}

async fn all_ended(registry: &Registry, within: Duration) -> bool {
    let started = Started::now();
    while registry.open_connections() > 0 {
        if started.ago() >= within {
            return false;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    true
}
