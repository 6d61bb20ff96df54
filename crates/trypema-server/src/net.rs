//! Connections: accepting them, and bounding their number, their duration and their memory.

mod connection;
mod crowd;
mod listener;
mod memory;
mod nofile;
mod notice;
mod peer;
mod registry;
mod stream;
mod tls;

pub(crate) use connection::{Order, Phase};
pub(crate) use listener::{Accepting, Listening, Protocol, bind};
pub(crate) use memory::{Reservation, UNACCOUNTED_BYTES};
pub(crate) use nofile::Descriptors;
pub(crate) use registry::{Place, Registry};
pub(crate) use stream::Stream;
pub(crate) use tls::{Certificates, TlsError};
