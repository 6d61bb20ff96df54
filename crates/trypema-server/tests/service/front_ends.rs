//! Front ends that only tests have. They contain nothing against hostile clients: `net` has that.

#[path = "front_ends/http2.rs"]
pub mod http2;
#[path = "front_ends/lines.rs"]
pub mod lines;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, StreamExt, unfold};
use tokio::sync::watch;
use trypema_server::testkit::Work;

/// Answers one request.
pub type Decide = Arc<dyn for<'w> Fn(String, &'w Work) -> BoxFuture<'w, String> + Send + Sync>;

/// Returns a stream with a line for each number that is sent. The line of a number beyond [`LONG`] is long.
pub fn stream_of(numbers: watch::Receiver<u64>) -> BoxStream<'static, Bytes> {
    let next = |mut numbers: watch::Receiver<u64>| async {
        numbers.changed().await.ok()?;
        let number = *numbers.borrow_and_update();
        let width = if number > LONG { 16 * 1024 } else { 0 };
        Some((Bytes::from(format!("{number:width$}\n")), numbers))
    };
    unfold(numbers, next).boxed()
}

pub const LONG: u64 = 1_000_000;
