//! Connections: accepting them, and bounding their number, their requests, their duration and their memory.

mod connection;
mod crowd;
mod eviction;
mod listener;
mod log_throttle;
mod memory;
mod nofile;
mod peer;
mod registry;
mod requests;
mod state;
mod stream;
mod streams;
mod timeouts;
mod tls;
mod work;

pub use connection::{Instruction, MAX_DECISIONS};
pub use listener::{Protocol, Serving};
pub use memory::{Reservation, UNACCOUNTED_BYTES};
pub use registry::Registry;
pub use stream::Stream;
pub use streams::{Delivery, OpenStream};
pub use work::{NotBegun, Work};

pub(crate) use listener::{Listener, bind};
pub(crate) use nofile::Descriptors;
pub(crate) use tls::{Certificates, TlsError, in_words};
