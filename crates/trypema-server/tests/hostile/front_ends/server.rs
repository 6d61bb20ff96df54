//! A server in the test's process, with a front end of the test beside its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use trypema_server::testkit::{Protocol, Registry};
use trypema_server::{App, Config, Interrupted, Server, Settings};
use trypema_testkit::redis::wait_until;

use super::decisions::Decisions;
use crate::front_ends_of_tests::http2::Http2;
use crate::front_ends_of_tests::lines::{Lines, decide_by};
use crate::front_ends_of_tests::stream_of;

/// Longer than anything takes on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// One connection may be slow for as long as no test drives the time.
const PATIENT: &str = "listen: 127.0.0.1:0\nadmin_listen: off\n\
                       header_timeout: 60s\nrequest_timeout: 120s\nidle_timeout: 180s\n";
/// More than each of these timeouts, by more than a step.
pub(super) const HEADER_TIMEOUT: Duration = Duration::from_secs(70);
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(130);
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(190);

/// Much less than any timeout.
const STEP: Duration = Duration::from_secs(5);
const BETWEEN_STEPS: Duration = Duration::from_millis(2);

/// A server that runs.
pub(super) struct Running {
    pub(super) lines: SocketAddr,
    /// Lines that the server's own rules decide.
    pub(super) checks: SocketAddr,
    pub(super) http2: SocketAddr,
    pub(super) http1_stream: SocketAddr,
    /// The numbers that streams send.
    pub(super) numbers: watch::Sender<u64>,
    connections: Arc<Registry>,
    app: Arc<App>,
    stop: Option<oneshot::Sender<()>>,
    pub(super) served: JoinHandle<Result<(), Interrupted>>,
}

impl Running {
    pub(super) async fn start(decisions: &Arc<Decisions>, settings: &str) -> Self {
        let config = Config::new(settings_of(&format!("{PATIENT}{settings}"))).unwrap();
        // Boxed, as the compiler refuses to nest the futures of a server in those of a test.
        let starting: BoxFuture<'_, _> = Server::start(config, None).boxed();
        let mut server = starting.await.unwrap();
        let (numbers, received) = watch::channel(0);
        let lines = server.add_listener(Arc::new(Lines(decisions.echo()))).unwrap();
        let checks = server.add_checking_listener(|checks| Arc::new(Lines(decide_by(checks)))).unwrap();
        let http2: Arc<dyn Protocol> =
            Arc::new(Http2 { decide: decisions.echo(), numbers: received.clone() });
        let http2 = server.add_listener(http2).unwrap();
        let http1_stream = server.add_stream_listener(Arc::new(move || stream_of(received.clone()))).unwrap();
        let (app, connections) = (Arc::clone(server.app()), Arc::clone(server.connections()));
        let (stop, stopped) = oneshot::channel();
        let running = server.run(async {
            stopped.await.unwrap_or_default();
            "the test ends"
        });
        let served = tokio::spawn(running.boxed());
        let stop = Some(stop);
        Self { lines, checks, http2, http1_stream, numbers, connections, app, stop, served }
    }

    /// Lets time pass for connections, in steps after each of which the server may do what is due.
    pub(super) async fn advance(&self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let step = left.min(STEP);
            self.connections.advance(step);
            left -= step;
            tokio::time::sleep(BETWEEN_STEPS).await;
        }
    }

    /// Tells the server to stop.
    pub(super) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Returns the value of a metric.
    pub(super) fn metric(&self, name: &str) -> f64 {
        let metrics = Server::metrics(&self.app);
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name} in\n{metrics}")).parse().unwrap()
    }

    pub(super) fn closed_early(&self, reason: &str) -> f64 {
        self.metric(&format!(r#"trypema_connections_closed_early_total{{reason="{reason}"}}"#))
    }

    /// Waits until `condition` holds.
    pub(super) fn wait(&self, what: &str, condition: impl Fn() -> bool) {
        tokio::task::block_in_place(|| wait_until(what, condition)).unwrap();
    }

    /// Waits until clients have read everything.
    pub(super) fn wait_for_readers(&self) {
        self.wait("everything to be read", || self.metric("trypema_buffered_bytes") == 0.0);
    }

    /// Waits until no connection is open, and nothing is left of them.
    pub(super) fn wait_for_silence(&self) {
        self.wait("all connections to end", || self.metric("trypema_connections") == 0.0);
        assert_eq!((self.metric("trypema_buffered_bytes"), self.metric("trypema_streams")), (0.0, 0.0));
    }
}

/// Reads settings as from a configuration file.
fn settings_of(text: &str) -> Settings {
    static WRITTEN: AtomicUsize = AtomicUsize::new(0);
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let file = std::env::temp_dir().join(format!("trypema-front-ends-{}-{number}.yaml", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let settings = Settings::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    settings
}
