//! Middleware.

#[cfg(feature = "axum")]
mod axum;
mod body;
mod builder;
mod config;
mod denial;
mod extractors;
mod future;
mod gate;
mod incoming;
mod invalid;
mod key;
mod layer;
mod options;
mod service;

pub use body::ResponseBody;
pub use builder::{ByLimit, ByRules, RateLimitLayerBuilder};
pub use denial::Denial;
pub use extractors::{
    ExtensionKeyExtractor, GlobalKeyExtractor, HeaderKeyExtractor, PathKeyExtractor, PeerIpKeyExtractor,
    SmartIpKeyExtractor,
};
pub use future::ResponseFuture;
pub use incoming::{Incoming, ResponseView};
pub use invalid::InvalidLayer;
pub use key::{Key, KeyExtractor};
pub use layer::RateLimitLayer;
pub use service::RateLimit;
