//! Reloads the TLS certificate on request, and warns before it expires.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::app::App;
use crate::clock::since_epoch;
use crate::net::{Certificates, in_words};

/// The interval at which the task compares the certificate's end with the time.
const INTERVAL: Duration = Duration::from_secs(60 * 60);
const DAY_S: u64 = 24 * 60 * 60;

/// The warnings before and after the end of a certificate, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Valid,
    Month,
    Week,
    Expired,
}

impl Stage {
    /// Returns the stage of a certificate that is valid for this time.
    fn of(left_s: u64) -> Self {
        match left_s {
            0 => Self::Expired,
            left_s if left_s <= 7 * DAY_S => Self::Week,
            left_s if left_s <= 30 * DAY_S => Self::Month,
            _ => Self::Valid,
        }
    }
}

/// Reloads the certificate when `reload` is notified, and logs once a stage that it is about to expire, forever.
pub(crate) async fn watch(app: Arc<App>, certificates: Arc<Certificates>, reload: Arc<Notify>) {
    let mut logged = Stage::Valid;
    loop {
        logged = log_expiry(&certificates, logged);
        if timeout(INTERVAL, reload.notified()).await.is_ok() && reload_now(&app, &certificates).await {
            logged = Stage::Valid;
        }
    }
}

/// Logs that the certificate is about to expire, unless that was `logged`, and returns the stage.
fn log_expiry(certificates: &Certificates, logged: Stage) -> Stage {
    let Some(end_s) = certificates.expires_at_s() else { return Stage::Valid };
    let left_s = end_s.saturating_sub(since_epoch().as_secs());
    let (stage, file) = (Stage::of(left_s), certificates.file().display());
    if stage <= logged {
        return logged;
    }
    if stage == Stage::Expired {
        tracing::error!(
            "tls: the certificate in {file} has expired; clients refuse it; renew it and send SIGHUP"
        );
    } else {
        let left = in_words(left_s);
        tracing::warn!("tls: the certificate in {file} expires in {left}; renew it and send SIGHUP");
    }
    stage
}

/// Reads the files again, and returns whether another certificate is in force.
async fn reload_now(app: &App, certificates: &Arc<Certificates>) -> bool {
    let file = certificates.file().display().to_string();
    let reloading = Arc::clone(certificates);
    let error = match tokio::task::spawn_blocking(move || reloading.reload()).await {
        Ok(Ok(())) => {
            app.metrics.tls.reloaded(certificates.expires_at_s());
            tracing::info!("tls: certificate reloaded from {file}");
            return true;
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("reading {file} was interrupted"),
    };
    app.metrics.tls.refused();
    tracing::error!("tls: cannot reload the certificate ({error}); keeping the previous certificate");
    false
}
