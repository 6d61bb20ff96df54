//! Finds out which permissions are missing when Redis begins to refuse calls, and when they are granted.

use std::sync::Arc;
use std::time::Duration;

use crate::app::App;

/// The interval at which the task checks for refused calls.
const INTERVAL: Duration = Duration::from_secs(1);
/// The time between two probes while something is missing or Redis does not answer. A probe is a few calls.
const REST: Duration = Duration::from_secs(5);

/// Probes the permissions of the Redis user when calls are refused, forever.
pub(crate) async fn watch(app: Arc<App>) {
    let mut seen = 0;
    loop {
        tokio::time::sleep(INTERVAL).await;
        let refused = app.metrics.store.calls.not_permitted.get();
        let is_known = app.has_probed_permissions() && app.missing_permissions().is_empty();
        if is_known && refused == seen && !app.is_cache_failing() {
            continue;
        }
        seen = refused;
        match app.probe_permissions().await {
            Ok(Some(missing)) if missing.is_empty() => {
                tracing::info!("store: the Redis user has all permissions again");
            }
            Ok(Some(missing)) => {
                let rules: Vec<String> = missing.iter().map(ToString::to_string).collect();
                tracing::error!(
                    "store: the Redis user lacks {}; Redis refuses calls until somebody permits them (`trypema redis \
                     acl` prints the command)",
                    rules.join(", ")
                );
            }
            Ok(None) => {}
            Err(error) => tracing::debug!("store: cannot check the permissions of the Redis user ({error})"),
        }
        tokio::time::sleep(REST).await;
    }
}
