//! Tools for testing: slow models of every strategy, random traces, and what drives them.

pub mod differential;
pub mod model;
pub mod random;
pub mod simulator;
pub mod subject;
pub mod trace;
