//! Integration with axum.

use std::net::SocketAddr;

use ::axum::body::Body;
use ::axum::extract::{ConnectInfo, OriginalUri};
use ::axum::response::{IntoResponse, Response};
use ::http::Extensions;

use crate::http::ErrorResponse;

/// Returns the peer address that axum recorded for the connection.
pub(super) fn connected(extensions: &Extensions) -> Option<SocketAddr> {
    extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(address)| *address)
}

/// Returns the full path of the request. A nested router sees only the rest of it.
pub(super) fn original_path(extensions: &Extensions) -> Option<&str> {
    extensions.get::<OriginalUri>().map(|OriginalUri(uri)| uri.path())
}

/// Handlers can return an [`ErrorResponse`] directly or with `?`.
///
/// ```
/// use std::time::Duration;
/// use trypema::http::{ErrorResponse, guard};
/// use trypema::{FixedWindowLimit, RateLimiter};
///
/// async fn export(rl: &RateLimiter, limit: &FixedWindowLimit) -> Result<&'static str, ErrorResponse> {
///     guard(&rl.local().fixed_window().take("ann", limit, 1), "exports")?;
///     Ok("a,b,c")
/// }
/// # fn returns_a_response<T: axum::response::IntoResponse>(_: impl Future<Output = T>) {}
/// # let rl = RateLimiter::builder().build()?;
/// # returns_a_response(export(&rl, &FixedWindowLimit::new(1, Duration::from_secs(1))?));
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
impl IntoResponse for ErrorResponse {
    fn into_response(self) -> Response {
        self.into_http_response::<Body>()
    }
}
