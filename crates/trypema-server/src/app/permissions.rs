//! The permissions of the Redis user.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::timeout;
use trypema::TrypemaError;
use trypema::redis::MissingPermission;

use super::{App, Warning};
use crate::rules::cache::Cache;
use crate::settings::Provider;
use crate::start_error::StartError;

/// The needed permissions that were missing at the last probe; `None` before the first one.
#[derive(Debug, Default)]
pub(super) struct Permissions(Mutex<Option<Vec<MissingPermission>>>);

/// The time that the probe may take at the start, of a Redis that has just answered. After it, the server
/// starts, and probes later.
const BUDGET: Duration = Duration::from_secs(5);

/// What a probe has found.
#[derive(Debug, Default)]
struct Probed {
    missing: Vec<MissingPermission>,
    /// Why a part of the probe did not end, if it did not.
    failure: Option<String>,
}

impl Probed {
    fn add(&mut self, found: Result<Vec<MissingPermission>, String>) {
        match found {
            Ok(found) => {
                let is_new =
                    |new: &MissingPermission| self.missing.iter().all(|known| known.rule != new.rule);
                let new: Vec<_> = found.into_iter().filter(is_new).collect();
                self.missing.extend(new);
            }
            Err(failure) => self.failure = Some(failure),
        }
    }
}

impl App {
    /// Probes the permissions of the Redis user at the start, if Redis answers. Otherwise the permission watch
    /// probes them later.
    ///
    /// # Errors
    ///
    /// A permission is missing that this configuration needs.
    pub(super) async fn require_permissions(&self, is_connected: bool) -> Result<(), StartError> {
        if self.provider != Provider::Memory && !is_connected {
            return Ok(());
        }
        let Ok(probed) = timeout(BUDGET, self.probe()).await else { return Ok(()) };
        let (optional, needed): (Vec<_>, Vec<_>) =
            probed.missing.into_iter().partition(|missing| missing.is_optional);
        for missing in optional {
            tracing::warn!(
                "store: the Redis user lacks {missing}; the server works without it, but does not check the version \
                 or the role of Redis"
            );
        }
        if !needed.is_empty() {
            return Err(StartError::MissingPermissions(needed.iter().map(ToString::to_string).collect()));
        }
        match probed.failure {
            None => *self.permissions() = Some(Vec::new()),
            Some(why) => tracing::warn!(
                "store: cannot check the permissions of the Redis user ({why}); starting anyway, and trying again later"
            ),
        }
        Ok(())
    }

    /// Probes the permissions of the Redis user again. Returns those that are missing now, if they have
    /// changed.
    ///
    /// # Errors
    ///
    /// Redis does not answer.
    pub(crate) async fn probe_permissions(&self) -> Result<Option<Vec<MissingPermission>>, String> {
        let Probed { mut missing, failure } = self.probe().await;
        if let Some(failure) = failure {
            return Err(failure);
        }
        missing.retain(|missing| !missing.is_optional);
        let before = self.permissions().replace(missing.clone());
        Ok((before.unwrap_or_default() != missing).then_some(missing))
    }

    /// Whether the permissions have been probed.
    pub(crate) fn has_probed_permissions(&self) -> bool {
        self.permissions().is_some()
    }

    /// Returns the needed permissions that the Redis user lacked at the last probe.
    pub(crate) fn missing_permissions(&self) -> Vec<MissingPermission> {
        self.permissions().clone().unwrap_or_default()
    }

    /// Whether the server uses Redis for counters or for the rule cache.
    pub(crate) fn uses_redis(&self) -> bool {
        self.provider != Provider::Memory || self.cache().is_some()
    }

    /// Whether the rule cache in Redis could not be written at the last attempt.
    pub(crate) fn is_cache_failing(&self) -> bool {
        self.rule_store().is_some_and(|rule_store| rule_store.is_cache_failing())
    }

    pub(super) fn warnings(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        warnings.extend((!self.missing_permissions().is_empty()).then_some(Warning::MissingPermissions));
        warnings.extend(self.is_cache_failing().then_some(Warning::RuleCacheFailing));
        warnings.extend(self.metrics.tls.is_refused().then_some(Warning::CertificateRefused));
        warnings
    }

    fn cache(&self) -> Option<&Cache> {
        self.rule_store().and_then(|rule_store| rule_store.cache())
    }

    async fn probe(&self) -> Probed {
        let mut probed = Probed::default();
        let error = |error: TrypemaError| error.to_string();
        match self.provider {
            Provider::Memory => {}
            Provider::Redis => probed.add(self.limiter.redis().missing_permissions().await.map_err(error)),
            Provider::Hybrid => probed.add(self.limiter.hybrid().missing_permissions().await.map_err(error)),
        }
        if let (Some(cache), Some(rule_store)) = (self.cache(), self.rule_store()) {
            let revision = rule_store.in_force().version.revision;
            probed.add(cache.missing_permissions(revision).await.map_err(|error| error.to_string()));
        }
        probed
    }

    fn permissions(&self) -> MutexGuard<'_, Option<Vec<MissingPermission>>> {
        self.permissions.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
