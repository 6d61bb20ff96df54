//! Real Redis servers for tests. They listen on free ports, and end with the value that started them.
//!
//! [`Server`] is one Redis, [`Cluster`] three primaries with a replica each, [`Sentinel`] a primary with
//! its replicas and three sentinels. [`FaultProxy`] stands in front of any of them and injects faults. The
//! servers listen on loopback only and write only to their own directories. They are killed when dropped,
//! even if the test panics or its process is killed.
//!
//! Every method blocks, with a timeout, so it works in sync and async tests alike. The error of a failed
//! method names the condition that it waited for, and contains the server's log.
//!
//! ```
//! use trypema_testkit::redis::Server;
//!
//! let server = Server::start()?;
//! let mut control = server.control()?;
//! control.command(&["SET", "greeting", "hello"])?;
//! assert_eq!(control.command(&["GET", "greeting"])?.text(), "hello");
//! # Ok::<(), trypema_testkit::redis::Error>(())
//! ```

mod binary;
mod builder;
mod cluster;
mod control;
mod directory;
mod error;
mod info;
mod monitor;
mod port;
mod process;
mod proxy;
mod sentinel;
mod server;
mod shared;
mod wait;

pub use binary::Binary;
pub use builder::ServerBuilder;
pub use cluster::{Cluster, Migration, SLOTS};
pub use control::{Control, Reply};
pub use error::{Error, Result};
pub use info::Info;
pub use monitor::{Monitor, Monitored};
pub use proxy::{FaultProxy, Rewrite};
pub use sentinel::Sentinel;
pub use server::Server;
pub use shared::Shared;
pub use wait::wait_until;

pub(crate) use binary::on_path;
pub(crate) use directory::Directory;
pub(crate) use port::Port;
pub(crate) use process::{Process, Watchdog};
pub(crate) use wait::poll;
