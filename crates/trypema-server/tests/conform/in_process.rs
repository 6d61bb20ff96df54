//! The service inside the test, whose time is the test's.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use trypema::clock::ManualClock;
use trypema_server::{App, Config, Server, Settings};
use trypema_testkit::blocking::{runtime, wait_for};

use crate::client::Client;
use crate::folder::Folder;

/// A service that goes by a clock that the test moves.
pub struct InProcess {
    pub app: Arc<App>,
    pub clock: Arc<ManualClock>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    served: Option<JoinHandle<()>>,
}

impl InProcess {
    /// The service with these settings, as lines of a configuration file, on a port of its own.
    pub fn start(settings: &str) -> Self {
        let folder = Folder::new();
        let file = folder.file("config.yaml", &format!("listen: 127.0.0.1:0\n{settings}"));
        let config = Config::new(Settings::read(&file).unwrap()).unwrap();
        let clock = Arc::new(ManualClock::default());
        let server = wait_for(Server::start(config, Some(clock.clone()))).unwrap();
        let (app, address) = (Arc::clone(server.app()), server.address());
        let (stop, stopped) = oneshot::channel();
        let served = runtime().spawn(server.run(async { stopped.await.unwrap_or_default() }));
        Self { app, clock, address, stop: Some(stop), served: Some(served) }
    }

    /// A new connection to it.
    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(served) = self.served.take() {
            let _ = wait_for(served);
        }
    }
}
