//! Real servers for tests, started on free ports and gone with the value that started them.
//!
//! [`Server`] is one Redis, [`Cluster`] three primaries with a replica each, [`Sentinel`] a primary, its replicas
//! and three sentinels; [`FaultProxy`] stands before any of them and harms what passes. The servers speak on
//! loopback only, write nothing but to a directory of their own and are killed when dropped, also when the test
//! panics or its process is killed.
//!
//! Every method blocks, for as long as a test would want to wait at most, so that they serve sync and async tests
//! alike. A method that fails says what it waited for and shows the server's log.
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
