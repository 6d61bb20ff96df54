//! Redis beside the least that a script can do and the published crate: `cargo xtask bench redis`.

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

pub use quick::run as run_quick;
pub use report::run;
pub use server::Place;
