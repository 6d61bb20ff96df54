//! TLS: the certificate in force, and its replacement at run time.

mod expiry;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use tokio_rustls::TlsAcceptor;

use self::expiry::expires_at_s;
use crate::clock::since_epoch;
use crate::config::Tls;

/// The reason why the server cannot use TLS.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file is missing, or is not valid PEM.
    #[error("{setting}: {file}: {reason}")]
    File {
        /// The setting that names the file.
        setting: &'static str,
        /// The name of the file.
        file: String,
        /// The reason.
        reason: String,
    },
    /// The certificate and the key do not belong together, or cannot be used.
    #[error("tls_certificate: {certificate} cannot be used with tls_key {key}: {reason}")]
    Unusable {
        /// The file of the certificate.
        certificate: String,
        /// The file of the key.
        key: String,
        /// The reason.
        reason: String,
    },
}

/// The certificate in force, and the files that it was read from.
#[derive(Debug)]
pub(crate) struct Certificates {
    files: Tls,
    in_force: ArcSwap<Certificate>,
}

/// A certificate that was read.
#[derive(Debug)]
struct Certificate {
    config: Arc<ServerConfig>,
    expires_at_s: Option<u64>,
}

impl Certificates {
    pub(crate) fn load(files: Tls) -> Result<Self, TlsError> {
        let in_force = ArcSwap::from_pointee(Certificate::read(&files)?);
        Ok(Self { files, in_force })
    }

    /// Reads the files again. New connections use the new certificate. If the files cannot be used, the old
    /// certificate stays in force.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        self.in_force.store(Arc::new(Certificate::read(&self.files)?));
        Ok(())
    }

    /// Returns the file of the certificate.
    pub(crate) fn file(&self) -> &Path {
        &self.files.certificate
    }

    /// Returns the time at which the certificate in force expires, in seconds of Unix time, if it has one.
    pub(crate) fn expires_at_s(&self) -> Option<u64> {
        self.in_force.load().expires_at_s
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.in_force.load().config))
    }
}

impl Certificate {
    /// Reads the files. Refuses a certificate that has expired: no client would accept it.
    fn read(files: &Tls) -> Result<Self, TlsError> {
        let chain = read_chain(&files.certificate)
            .map_err(|reason| file_error("tls_certificate", &files.certificate, reason))?;
        let expires_at_s = chain.first().and_then(|certificate| expires_at_s(certificate));
        let now_s = since_epoch().as_secs();
        if let Some(expired_s) = expires_at_s.and_then(|end_s| now_s.checked_sub(end_s)) {
            let reason = format!("the certificate expired {} ago", in_words(expired_s));
            return Err(file_error("tls_certificate", &files.certificate, reason));
        }
        let key = read_key(&files.key).map_err(|reason| file_error("tls_key", &files.key, reason))?;
        let config = config(chain, key).map_err(|error| TlsError::Unusable {
            certificate: files.certificate.display().to_string(),
            key: files.key.display().to_string(),
            reason: match error {
                rustls::Error::InconsistentKeys(_) => "the key does not belong to the certificate".to_owned(),
                rustls::Error::InvalidCertificate(error) => format!("the certificate is invalid ({error:?})"),
                other => other.to_string(),
            },
        })?;
        Ok(Self { config: Arc::new(config), expires_at_s })
    }
}

fn config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Reads a certificate and those of its issuers.
fn read_chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let chain: Vec<_> = chain.map_err(|error| pem_error(&error))?;
    if chain.is_empty() {
        return Err("the file has no certificate (`-----BEGIN CERTIFICATE-----`)".to_owned());
    }
    Ok(chain)
}

fn read_key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| match error {
        pem::Error::NoItemsFound
            if fs::read_to_string(file).is_ok_and(|text| text.contains("ENCRYPTED PRIVATE KEY")) =>
        {
            "the private key is encrypted; `openssl pkey -in FILE` decrypts it".to_owned()
        }
        pem::Error::NoItemsFound => "the file has no private key (`-----BEGIN PRIVATE KEY-----`)".to_owned(),
        other => pem_error(&other),
    })
}

/// Describes an error for people: its own text has markers and lines as numbers.
fn pem_error(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            let label = String::from_utf8_lossy(end_marker);
            format!("the file is incomplete: `-----END {label}-----` is missing")
        }
        // The line may have a part of the key.
        pem::Error::IllegalSectionStart { .. } => "a line `-----BEGIN …-----` is malformed".to_owned(),
        pem::Error::Base64Decode(_) => "a PEM section is not valid base64".to_owned(),
        pem::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

fn file_error(setting: &'static str, file: &Path, reason: String) -> TlsError {
    TlsError::File { setting, file: file.display().to_string(), reason }
}

/// Returns a time in its largest unit.
pub(crate) fn in_words(seconds: u64) -> String {
    let (count, unit) = match seconds {
        ..120 => (seconds, "second"),
        120..7_200 => (seconds / 60, "minute"),
        7_200..172_800 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}
