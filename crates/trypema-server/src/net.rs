//! Connections: how many, for how long, and what they may hold.

mod connection;
mod listener;
mod nofile;
mod registry;
mod stream;
mod tls;

pub(crate) use connection::{Order, Phase};
pub(crate) use listener::{Accepting, Protocol, bind};
pub(crate) use nofile::raise_descriptor_limit;
pub(crate) use registry::{Place, Registry};
pub(crate) use stream::Stream;
pub(crate) use tls::{Certificates, TlsError};
