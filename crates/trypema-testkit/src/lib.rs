//! Test tools: slow reference models of every strategy, random traces, a simulator, and real Redis and
//! PostgreSQL servers.

#[cfg(feature = "redis")]
pub mod blocking;
pub mod differential;
pub mod model;
pub mod own_process;
pub mod postgres;
pub mod program;
pub mod random;
pub mod redis;
#[cfg(feature = "rules")]
pub mod rule_model;
#[cfg(feature = "rules")]
pub mod rule_trace;
pub mod simulator;
pub mod subject;
pub mod svg;
pub mod trace;
pub mod verbs;

#[doc(hidden)]
pub use trypema::strategy as strategies;
