//! The listeners: one row for each.

mod administration;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use tokio::net::TcpListener;
use trypema::clock::Clock;

pub use self::administration::AdminAddress;
use crate::config::Config;
use crate::front::http::{Api, Http, RouteListener};
use crate::logins::LoginGuard;
use crate::metrics::LoginMetrics;
use crate::net::{self, Certificates, Listener, Protocol, Registry};
use crate::service::Access;
use crate::start_error::StartError;
use crate::tokens::{SharedTokens, Tokens};

/// A listener that a configuration may have.
struct Row {
    /// The setting with its address.
    setting: &'static str,
    /// The component that its log lines about logins begin with.
    component: &'static str,
    /// Listens, unless the listener is off. May add tokens, which are valid at every listener.
    open: fn(setting: &'static str, &Config, &mut Tokens) -> Result<Option<Socket>, StartError>,
    protocol: fn(&Arc<Api>, Access) -> Arc<dyn Protocol>,
}

/// All listeners, in the order in which they are opened. The first one is never off.
const LISTENERS: [Row; 2] = [
    Row {
        setting: "listen",
        component: "requests",
        open: |setting, config, _| Socket::bind(setting, config.values.listen).map(Some),
        protocol: |api, access| Arc::new(Http::new(api, RouteListener::Check, access)),
    },
    Row {
        setting: "admin_listen",
        component: "administration",
        open: administration::open,
        protocol: |api, access| Arc::new(Http::new(api, RouteListener::Administration, access)),
    },
];

/// A socket that listens.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: TcpListener,
    pub(crate) address: SocketAddr,
    /// Present at the listener for administration.
    pub(crate) admin: Option<AdminAddress>,
}

impl Socket {
    /// Listens at the address that `setting` gives.
    pub(crate) fn bind(setting: &'static str, address: SocketAddr) -> Result<Self, StartError> {
        let failed = |source| StartError::Listen { setting, address, source };
        let (listener, address) = net::bind(address).map_err(failed)?;
        Ok(Self { listener, address, admin: None })
    }
}

/// A socket, and the constructor of the protocol that is spoken there.
struct Opened {
    socket: Socket,
    protocol: NewProtocol,
}

type NewProtocol = Box<dyn FnOnce(&Arc<Api>, SharedTokens) -> Arc<dyn Protocol> + Send + Sync>;

/// The sockets of a server that is not running yet.
pub(crate) struct OpenListeners {
    all: Vec<Opened>,
    pub(crate) tokens: SharedTokens,
}

impl OpenListeners {
    /// Opens every listener that is on. The limits on logins follow `clock`, or the system's.
    pub(crate) fn open(
        config: &Config,
        clock: Option<Arc<dyn Clock>>,
        logins: &Arc<LoginMetrics>,
    ) -> Result<Self, StartError> {
        let (mut all, mut tokens) = (Vec::new(), config.tokens.clone());
        for row in LISTENERS {
            let Some(socket) = (row.open)(row.setting, config, &mut tokens)? else { continue };
            let guard = LoginGuard::new(row.component, clock.clone(), Arc::clone(logins))?;
            let protocol = move |api: &Arc<Api>, tokens| (row.protocol)(api, Access { tokens, guard });
            all.push(Opened { socket, protocol: Box::new(protocol) });
        }
        Ok(Self { all, tokens: Arc::new(ArcSwap::from_pointee(tokens)) })
    }

    /// Adds a listener with a protocol of a test, on a free port, and returns its address.
    #[cfg(feature = "unstable-testkit")]
    pub(crate) fn add(
        &mut self,
        protocol: impl FnOnce(&Arc<Api>) -> Arc<dyn Protocol> + Send + Sync + 'static,
    ) -> Result<SocketAddr, StartError> {
        let socket = Socket::bind("a test", SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = socket.address;
        self.all.push(Opened { socket, protocol: Box::new(move |api, _| protocol(api)) });
        Ok(address)
    }

    /// Returns the sockets, the first listener's first.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.all.iter().map(|opened| &opened.socket)
    }

    /// Returns the listeners, each with its protocol.
    pub(crate) fn with_protocols(
        self,
        api: &Arc<Api>,
        registry: &Arc<Registry>,
        certificates: Option<&Arc<Certificates>>,
    ) -> Listeners {
        let listener = |opened: Opened| {
            let protocol = (opened.protocol)(api, Arc::clone(&self.tokens));
            Listener::new(opened.socket.listener, protocol, registry, certificates.cloned())
        };
        Listeners(self.all.into_iter().map(listener).collect())
    }
}

impl fmt::Debug for OpenListeners {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.sockets()).finish()
    }
}

/// All listeners of a server that runs.
pub(crate) struct Listeners(Vec<Listener>);

impl Listeners {
    /// Accepts connections on all listeners until it is dropped.
    pub(crate) async fn accept(&self) {
        join_all(self.0.iter().map(Listener::accept)).await;
    }

    /// Serves the connections that the kernel has already accepted, then closes all listeners.
    pub(crate) fn drain_backlog(self) {
        self.0.into_iter().for_each(Listener::drain_backlog);
    }
}
