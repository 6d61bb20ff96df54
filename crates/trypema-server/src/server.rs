//! The life cycle of the server: it starts, serves, reloads on request, and stops without losing a
//! response.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use trypema::clock::Clock;

use crate::administration::{AdminAddress, Administration};
use crate::app::App;
use crate::clock::Started;
use crate::config::Config;
use crate::front::http::{Access, AdminApi, CheckApi, Common, Http};
use crate::logins::LoginGuard;
use crate::net::{self, Accepting, Certificates, Descriptors, Listening, Registry};
use crate::rule_watcher;
use crate::spans::Spans;
use crate::start_error::StartError;

/// The interval at which the circuit breakers are checked, to log that Redis became unreachable or
/// recovered.
const WATCH_STORE_EVERY: Duration = Duration::from_secs(1);
/// The interval at which shutdown checks whether the last connection has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// The time that shutdown gives clients to complete a request that they have begun to send.
const MOMENT_TO_ASK: Duration = Duration::from_secs(1);
/// The minimum time for returning leases to Redis, even if connections have used up the whole deadline.
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// The error of a background task that ended unexpectedly. The server then stops, because it could not be
/// trusted.
#[derive(Debug, Error)]
#[error("a background task ended; see the log")]
pub struct Interrupted;

/// A server that is bound to its addresses. It serves once it is [run](Server::run).
#[derive(Debug)]
pub struct Server {
    app: Arc<App>,
    config: Config,
    listener: TcpListener,
    address: SocketAddr,
    administration: Option<Administration>,
    /// The guards of the check listener and of the administration listener.
    guards: [LoginGuard; 2],
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
        let certificates = config.tls.clone().map(Certificates::read).transpose()?.map(Arc::new);
        let app = Arc::new(App::new(&config, clock.clone()).await?);
        let failed = |source| StartError::Listen { address: config.listen, source };
        let listener = net::bind(config.listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let administration = Administration::open(&config)?;
        let guard = || LoginGuard::new(clock.clone(), Arc::clone(&app.metrics.logins));
        let (guards, reload) = ([guard()?, guard()?], Reload::default());
        Ok(Self { app, config, listener, address, administration, guards, certificates, reload })
    }

    /// Returns the address of the check listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address of the administration listener, if there is one.
    pub fn admin(&self) -> Option<&AdminAddress> {
        self.administration.as_ref().map(|administration| &administration.about)
    }

    /// Returns the state that all front ends share.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Returns a handle that makes the server reload its rules and certificates.
    pub fn reload(&self) -> Reload {
        self.reload.clone()
    }

    /// Serves until `stop` completes. Then finishes requests in flight, returns leased units to Redis, and
    /// returns.
    ///
    /// # Errors
    ///
    /// The server stopped because a background task ended.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), Interrupted> {
        let registry = self.registry();
        let mut background = self.background(&registry);
        let (spans, sending) = match self.config.collector.take() {
            Some(collector) => {
                let (spans, sending) = Spans::to(collector, Arc::clone(&self.app.metrics.dropped_spans));
                (Some(Arc::new(spans)), Some(tokio::spawn(sending)))
            }
            None => (None, None),
        };
        let (app, config) = (Arc::clone(&self.app), self.config.clone());
        let listeners = self.into_listeners(&registry, spans);
        let outcome = tokio::select! {
            () = listeners.accept() => Ok(()),
            () = stop => Ok(()),
            Some(ended) = background.join_next() => {
                tracing::error!(?ended, "a background task ended");
                Err(Interrupted)
            }
        };
        tracing::info!("stopping: no more requests are wanted");
        app.drain();
        tokio::select! {
            () = listeners.accept() => {}
            () = tokio::time::sleep(config.shutdown_delay) => {}
        }
        registry.finish_all();
        listeners.run_out();
        stop_all(&app, &registry, config.shutdown_deadline, sending).await;
        background.shutdown().await;
        tracing::info!("stopped");
        outcome
    }

    /// Returns both listeners, each with its API.
    fn into_listeners(self, registry: &Arc<Registry>, spans: Option<Arc<Spans>>) -> Listeners {
        let common = Common::new(Arc::clone(&self.app), &self.config, spans);
        let [check_guard, admin_guard] = self.guards;
        let (tokens, administration) = match self.administration {
            Some(Administration { listener, tokens, .. }) => (tokens.clone(), Some((listener, tokens))),
            None => (self.config.tokens.clone(), None),
        };
        let check = CheckApi::new(common.clone(), &self.config, Access { tokens, guard: check_guard });
        let check = Listening {
            listener: self.listener,
            accepting: Accepting {
                protocol: Arc::new(Http(check)),
                registry: Arc::clone(registry),
                certificates: self.certificates.clone(),
            },
        };
        let admin = administration.map(|(listener, tokens)| {
            let admin = AdminApi::new(common, &self.config, Access { tokens, guard: admin_guard });
            let (protocol, registry) = (Arc::new(Http(admin)), Arc::clone(registry));
            let accepting = Accepting { protocol, registry, certificates: self.certificates };
            Listening { listener, accepting }
        });
        Listeners { check, admin }
    }

    fn registry(&self) -> Arc<Registry> {
        let limits = &self.config.limits;
        let room = Descriptors::claim(limits.connections);
        if room.connections < limits.connections {
            tracing::warn!(
                connections = room.connections,
                max_connections = limits.connections,
                "the limit of open files is lower than max_connections; raise it with `ulimit -n` or LimitNOFILE="
            );
        }
        Arc::new(Registry::new(Arc::clone(&self.app.metrics.connections), &self.config, room))
    }

    /// Spawns the background tasks.
    fn background(&self, registry: &Arc<Registry>) -> JoinSet<()> {
        let mut background = JoinSet::new();
        let (app, registry) = (&self.app, Arc::clone(registry));
        background.spawn(async move { registry.keep_time().await });
        rule_watcher::spawn(&mut background, app, Arc::clone(&self.reload.rules));
        background.spawn(watch_store(Arc::clone(app)));
        if let Some(certificates) = self.certificates.clone() {
            background.spawn(watch_certificates(certificates, Arc::clone(&self.reload.certificates)));
        }
        if let Some(work) = app.background() {
            background.spawn(work);
        }
        background
    }
}

/// Both listeners.
struct Listeners {
    check: Listening<Http<CheckApi>>,
    admin: Option<Listening<Http<AdminApi>>>,
}

impl Listeners {
    /// Accepts connections on both listeners until it is dropped.
    async fn accept(&self) {
        let admin = async {
            match &self.admin {
                Some(admin) => admin.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::join!(self.check.accept(), admin);
    }

    /// Serves the connections that the kernel has already accepted, then closes both listeners.
    fn run_out(self) {
        self.check.run_out();
        if let Some(admin) = self.admin {
            admin.run_out();
        }
    }
}

/// Waits for the last responses, then returns leased units to Redis, then sends the last spans.
async fn stop_all(app: &App, registry: &Registry, deadline: Duration, sending: Option<JoinHandle<()>>) {
    let stopping = Started::now();
    let left = || deadline.saturating_sub(stopping.ago()).max(LAST_MOMENT);
    finish(registry, deadline).await;
    if timeout(left(), app.release()).await.is_err() {
        tracing::warn!(
            "what is held could not be given back in time; it stays counted until it leaves by itself"
        );
    }
    if let Some(sending) = sending
        && timeout(left(), sending).await.is_err()
    {
        tracing::warn!("the last spans could not be sent in time");
    }
}

/// Waits until every connection has ended. Connections whose client is still sending get [`MOMENT_TO_ASK`];
/// those whose request is being answered get until `deadline`.
async fn finish(registry: &Registry, deadline: Duration) {
    if all_ended(registry, deadline.min(MOMENT_TO_ASK)).await {
        return;
    }
    registry.end_unasked();
    if all_ended(registry, deadline.saturating_sub(MOMENT_TO_ASK)).await {
        return;
    }
    tracing::warn!(connections = registry.open(), "ending connections that took too long");
    registry.end_all();
    all_ended(registry, LAST_MOMENT).await;
}

async fn all_ended(registry: &Registry, within: Duration) -> bool {
    let started = Started::now();
    while registry.open() > 0 {
        if started.ago() >= within {
            return false;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    true
}

async fn watch_certificates(certificates: Arc<Certificates>, asked: Arc<Notify>) {
    loop {
        asked.notified().await;
        let certificates = Arc::clone(&certificates);
        match tokio::task::spawn_blocking(move || certificates.read_again()).await {
            Ok(Ok(())) => tracing::info!("the certificate was read again"),
            Ok(Err(error)) => {
                tracing::error!(%error, "the new certificate cannot be used; the old one stays")
            }
            Err(_) => {}
        }
    }
}

async fn watch_store(app: Arc<App>) {
    let mut was_away = false;
    loop {
        tokio::time::sleep(WATCH_STORE_EVERY).await;
        let is_away = app.is_store_away();
        match (was_away, is_away) {
            (false, true) => tracing::warn!("redis does not answer; rules answer as they were told to"),
            (true, false) => tracing::info!("redis answers again"),
            _ => {}
        }
        was_away = is_away;
    }
}
