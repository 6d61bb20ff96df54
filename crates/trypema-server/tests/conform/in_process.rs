//! A server inside the test process, with a manual clock.

use std::net::SocketAddr;
use std::sync::Arc;
#[cfg(feature = "unstable-testkit")]
use std::{io, sync::Mutex};

#[cfg(feature = "unstable-testkit")]
use tokio::runtime::Builder;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
#[cfg(feature = "unstable-testkit")]
use tracing::Dispatch;
use trypema::clock::{ManualClock, Timestamp};
use trypema::rules::RuleSet;
use trypema_server::{App, Config, Interrupted, Server, Settings};
use trypema_testkit::blocking::{runtime, wait_for};

use crate::client::{Admin, Client};
use crate::folder::Folder;
#[cfg(feature = "unstable-testkit")]
use crate::front_ends::lines::{Lines, decide_by};

/// The time at which tests begin: in the middle of an hour, and at the start of a window of ten seconds.
pub const START: Timestamp = Timestamp::from_micros(1_600_000_000_000_000);

/// The admin token, unless the settings contain one.
pub const TOKEN: &str = "token-of-the-test";

/// The log of one server.
#[cfg(feature = "unstable-testkit")]
#[derive(Default)]
pub struct Log(Mutex<Vec<u8>>);

#[cfg(feature = "unstable-testkit")]
impl Log {
    /// Returns what was written since the last call.
    pub fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

#[cfg(feature = "unstable-testkit")]
impl io::Write for &Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A server whose clock the test moves.
pub struct InProcess {
    pub app: Arc<App>,
    pub clock: Arc<ManualClock>,
    address: SocketAddr,
    /// The address of the line protocol, which checks go to after [`InProcess::by_lines`].
    #[cfg(feature = "unstable-testkit")]
    lines: SocketAddr,
    is_by_lines: bool,
    admin: Admin,
    stop: Option<oneshot::Sender<()>>,
    served: Option<JoinHandle<Result<(), Interrupted>>>,
    /// The runtime of this server alone.
    runtime: Option<Runtime>,
}

impl InProcess {
    /// Starts a server with these settings, as lines of a configuration file, on a free port.
    pub fn start(settings: &str) -> Self {
        Self::listening("127.0.0.1:0", settings)
    }

    /// Starts a server with these rules and no other settings.
    pub fn with_rules(rules: &str) -> Self {
        Self::start("").ruled_by(rules)
    }

    /// Starts a server with these settings on this address.
    pub fn listening(address: &str, settings: &str) -> Self {
        Self::on(runtime(), address, settings)
    }

    /// Starts a server with these settings, whose log goes to `log` as JSON, from level `debug` on.
    #[cfg(feature = "unstable-testkit")]
    pub fn logging_to(log: &Arc<Log>, settings: &str) -> Self {
        let subscriber = tracing_subscriber::fmt().json().flatten_event(true).without_time();
        let subscriber = subscriber.with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG);
        let dispatch = Dispatch::new(subscriber.with_writer(Arc::clone(log)).finish());
        // Only the threads of this runtime log there. All tasks of the server run on them.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .on_thread_start(move || std::mem::forget(tracing::dispatcher::set_default(&dispatch)))
            .build()
            .unwrap();
        let mut service = Self::on(&runtime, "127.0.0.1:0", settings);
        service.runtime = Some(runtime);
        service
    }

    fn on(runtime: &Runtime, address: &str, settings: &str) -> Self {
        let folder = Folder::new();
        let has_token = settings.contains("_token");
        let token = if has_token { String::new() } else { format!("admin_token: {TOKEN}\n") };
        let listen = format!("listen: {address}\nadmin_listen: 127.0.0.1:0\n");
        // The clients of tests keep idle connections, and send nothing on them once the server stops.
        let stop = if settings.contains("shutdown_deadline") { "" } else { "shutdown_deadline: 100ms\n" };
        let file = folder.file("config.yaml", &format!("{listen}{token}{stop}{settings}"));
        let config = Config::new(Settings::read(&file).unwrap()).unwrap();
        let clock = Arc::new(ManualClock::default());
        clock.set(START);
        #[allow(unused_mut, reason = "only the testkit adds a listener")]
        let mut server = runtime.block_on(Server::start(config, Some(clock.clone()))).unwrap();
        #[cfg(feature = "unstable-testkit")]
        let lines = runtime.block_on(async {
            server.add_checking_listener(|checks| Arc::new(Lines(decide_by(checks)))).unwrap()
        });
        let (app, address) = (Arc::clone(server.app()), server.address());
        let token = (!has_token).then(|| TOKEN.to_owned());
        let admin = Admin { address: server.admin().unwrap().address, token };
        let (stop, stopped) = oneshot::channel();
        let served = runtime.spawn(server.run(async {
            stopped.await.unwrap_or_default();
            "the test ends"
        }));
        Self {
            app,
            clock,
            address,
            #[cfg(feature = "unstable-testkit")]
            lines,
            is_by_lines: false,
            admin,
            stop: Some(stop),
            served: Some(served),
            runtime: None,
        }
    }

    /// Has clients send their checks over the line protocol.
    pub fn by_lines(mut self) -> Self {
        self.is_by_lines = true;
        self
    }

    /// Replaces the rules.
    pub fn ruled_by(self, rules: &str) -> Self {
        self.app.replace_rules(RuleSet::from_yaml(rules, "rules.yaml").unwrap());
        self
    }

    /// Opens a connection that sends each request to the right listener, with the admin token.
    pub fn client(&self) -> Client {
        self.check_client().with_admin(Some(self.admin.clone()))
    }

    /// Opens a connection to the check listener alone, without a token.
    pub fn check_client(&self) -> Client {
        let client = Client::connect(SocketAddr::from(([127, 0, 0, 1], self.address.port())));
        #[cfg(feature = "unstable-testkit")]
        if self.is_by_lines {
            return client.with_lines(self.lines);
        }
        client
    }

    /// Returns the address of the check listener, for commands.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.address.port())
    }

    /// Opens a connection to the admin listener, without a token.
    pub fn admin_client(&self) -> Client {
        Client::connect(self.admin.address)
    }

    /// Returns the port of the admin listener.
    pub fn admin_port(&self) -> u16 {
        self.admin.address.port()
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(served) = self.served.take() {
            let ended = wait_for(served).map_or(true, |ended| ended.is_ok());
            assert!(ended || std::thread::panicking(), "the service stopped by itself");
        }
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}
