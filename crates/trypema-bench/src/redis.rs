//! The Redis provider next to minimal scripts and trypema 2.2.1: `cargo xtask bench redis`.

mod bars;
pub mod contender;
pub mod drive;
pub mod floors;
mod measure;
mod memory;
pub mod ours;
mod peers;
mod quick;
mod report;
mod server;
mod settling;

pub use quick::run as run_quick;
pub use report::run;
pub use server::Place;
