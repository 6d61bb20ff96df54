//! Connections: accepting them, and bounding their number, their duration and their memory.

mod connection;
mod crowd;
mod listener;
mod log_throttle;
mod memory;
mod nofile;
mod peer;
mod registry;
mod stream;
mod tls;

pub(crate) use connection::{Instruction, Phase};
pub(crate) use listener::{Acceptor, Listener, Protocol, bind};
pub(crate) use memory::{Reservation, UNACCOUNTED_BYTES};
pub(crate) use nofile::Descriptors;
pub(crate) use registry::{ConnectionSlot, Registry};
pub(crate) use stream::Stream;
pub(crate) use tls::{Certificates, TlsError};
