//! Metrics of the TLS certificate.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Counter, Exposition, Families, metrics};

metrics! {
    /// Reloads of the certificate.
    TlsReloads {
        "trypema_tls_reloads_total", "Reloads of the TLS certificate, by result.", by "result" {
            ok: Counter,
            error: Counter,
        }
    }
}

/// What metrics and `/readyz` tell about the TLS certificate.
#[derive(Debug, Default)]
pub(crate) struct TlsMetrics {
    reloads: TlsReloads,
    /// Unix time; 0 without TLS.
    expires_at_s: AtomicU64,
    is_refused: AtomicBool,
}

impl TlsMetrics {
    /// Records the certificate that is in force when the server starts.
    pub(crate) fn started(&self, expires_at_s: Option<u64>) {
        self.expires_at_s.store(expires_at_s.unwrap_or_default(), Ordering::Relaxed);
    }

    /// Records a certificate that was put in force in place of another one.
    pub(crate) fn reloaded(&self, expires_at_s: Option<u64>) {
        self.started(expires_at_s);
        self.is_refused.store(false, Ordering::Relaxed);
        self.reloads.ok.add_one();
    }

    /// Records that the files could not be used.
    pub(crate) fn refused(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
        self.reloads.error.add_one();
    }

    /// Whether the files could not be used when they were read last, so that an older certificate is in force.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    pub(super) fn write(&self, text: &mut Exposition) {
        self.reloads.write(text);
        let expires_at_s = self.expires_at_s.load(Ordering::Relaxed);
        if expires_at_s > 0 {
            let help = "Unix time at which the TLS certificate in force expires.";
            text.gauge("trypema_tls_certificate_expires_timestamp_seconds", help, expires_at_s);
        }
    }
}
