//! Real PostgreSQL servers for tests, like the Redis servers of [`redis`](crate::redis).
//!
//! [`Server`] listens on a free loopback port and writes only to its own directory. It is killed when
//! dropped, even if the test panics or its process is killed. A [`FaultProxy`](crate::redis::FaultProxy)
//! can stand in front of it.
//!
//! ```
//! use trypema_testkit::postgres::Server;
//!
//! let server = Server::start()?;
//! server.sql("CREATE TABLE greetings (text text); INSERT INTO greetings VALUES ('hello')")?;
//! assert_eq!(server.sql("SELECT text FROM greetings")?, "hello");
//! # Ok::<(), trypema_testkit::postgres::Error>(())
//! ```

mod account;
mod processes;
mod programs;
mod server;
mod template;

pub use crate::redis::{Error, Result};
pub use server::Server;
