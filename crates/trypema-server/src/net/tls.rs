//! TLS: the certificate in force, and its replacement at run time.

use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use tokio_rustls::TlsAcceptor;

use crate::config::Tls;

/// The reason why the server cannot use TLS.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file is missing, or is not valid PEM.
    #[error("{file}: {reason}")]
    File {
        /// The name of the file.
        file: String,
        /// The reason.
        reason: String,
    },
    /// The certificate and the key do not belong together, or cannot be used.
    #[error("the certificate cannot be used with its key: {0}")]
    Unusable(#[from] rustls::Error),
}

/// The certificate in force, and the files that it was read from.
#[derive(Debug)]
pub(crate) struct Certificates {
    files: Tls,
    config: ArcSwap<ServerConfig>,
}

impl Certificates {
    pub(crate) fn load(files: Tls) -> Result<Self, TlsError> {
        let config = ArcSwap::new(load_config(&files)?);
        Ok(Self { files, config })
    }

    /// Reads the files again. New connections use the new certificate. If the files cannot be used, the old
    /// certificate stays in force.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        self.config.store(load_config(&self.files)?);
        Ok(())
    }

    /// Returns the file of the certificate.
    pub(crate) fn file(&self) -> &Path {
        &self.files.certificate
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.load_full())
    }
}

fn load_config(files: &Tls) -> Result<Arc<ServerConfig>, TlsError> {
    let certificates: Vec<_> = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect)
        .map_err(|error| file_error(&files.certificate, error))?;
    if certificates.is_empty() {
        return Err(file_error(&files.certificate, "the file contains no certificate"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| file_error(&files.key, error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn file_error(file: &Path, reason: impl ToString) -> TlsError {
    TlsError::File { file: file.display().to_string(), reason: reason.to_string() }
}
