//! The life cycle of the server: it starts, serves, reloads on request, and stops without losing a
//! response.

use std::net::SocketAddr;
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
use crate::clock::Started;
use crate::config::Config;
use crate::front::http::Api;
use crate::listeners::{AdminAddress, OpenListeners};
use crate::net::{Certificates, Descriptors, Listener, Registry};
use crate::permission_watch;
use crate::rule_watcher;
use crate::service::Service;
use crate::spans::Spans;
use crate::start_error::StartError;
use crate::store_watch;

/// The interval at which shutdown checks whether the last connection has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
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
    reload: Reload,
}

/// A handle that makes the server reload its rules and certificates, as SIGHUP does.
#[derive(Debug, Clone, Default)]
pub struct Reload {
    rules: Arc<Notify>,
    certificates: Arc<Notify>,
}

impl Reload {
    /// Requests a reload. A request during a reload causes another one.
    pub fn request(&self) {
        self.rules.notify_one();
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
        let certificates = config.tls.clone().map(Certificates::load).transpose()?.map(Arc::new);
        let app = Arc::new(App::new(&config, clock.clone()).await?);
        let listeners = OpenListeners::open(&config, clock, &app.metrics.logins)?;
        let (registry, reload) = (registry(&app, &config), Reload::default());
        Ok(Self { app, config, listeners, registry, certificates, reload })
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

    /// Returns a handle that makes the server reload its rules and certificates.
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
        registry.finish_all();
        listeners.into_iter().for_each(Listener::drain_backlog);
        stop_all(&app, &registry, config.values.shutdown_deadline.0, sending).await;
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
        if app.denial_log.is_sampled() {
            let app = Arc::clone(app);
            background.spawn("denial log", async move { app.denial_log.run().await });
        }
        if let Some(certificates) = self.certificates.clone() {
            let watching = watch_certificates(certificates, Arc::clone(&self.reload.certificates));
            background.spawn("certificate reload", watching);
        }
        if let Some(work) = app.background() {
            background.spawn("lease sync", work);
        }
        background
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
async fn stop_all(app: &App, registry: &Registry, deadline: Duration, sending: Option<JoinHandle<()>>) {
    let stopping = Started::now();
    let left = || deadline.saturating_sub(stopping.ago()).max(FINAL_GRACE);
    finish(registry, deadline).await;
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

/// Waits until every connection has ended. Connections whose client is still sending get [`REQUEST_GRACE`];
/// those whose request is being answered get until `deadline`.
async fn finish(registry: &Registry, deadline: Duration) {
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

async fn watch_certificates(certificates: Arc<Certificates>, reload: Arc<Notify>) {
    let file = certificates.file().display().to_string();
    loop {
        reload.notified().await;
        let certificates = Arc::clone(&certificates);
        match tokio::task::spawn_blocking(move || certificates.reload()).await {
            Ok(Ok(())) => tracing::info!("tls: certificate reloaded from {file}"),
            Ok(Err(error)) => tracing::error!(
                "tls: cannot reload the certificate ({error}); keeping the previous certificate"
            ),
            Err(_) => {
                tracing::error!("tls: reading {file} was interrupted; keeping the previous certificate")
            }
        }
    }
}
