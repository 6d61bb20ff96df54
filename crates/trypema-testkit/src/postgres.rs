//! A real PostgreSQL for tests, as [`redis`](crate::redis) has real servers of Redis.
//!
//! [`Server`] listens on a free loopback port, writes nothing but to a directory of its own and is killed when
//! dropped, also when the test panics or its process is killed. A [`FaultProxy`](crate::redis::FaultProxy) can stand
//! before it.
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
