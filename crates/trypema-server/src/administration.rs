//! The administration listener: its address and its tokens.

use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::net::TcpListener;

use crate::config::{AdminListen, Config};
use crate::net;
use crate::secret::Secret;
use crate::start_error::StartError;
use crate::token_file;
use crate::tokens::{TokenRole, Tokens};

/// The address of the administration listener, and the token for it.
#[derive(Debug, Clone)]
pub struct AdminAddress {
    /// The address.
    pub address: SocketAddr,
    /// The file that holds the token, if the server generated one.
    pub token_file: Option<PathBuf>,
    /// The generated token.
    pub(crate) generated_token: Option<Secret>,
}

impl AdminAddress {
    fn new(address: SocketAddr) -> Self {
        Self { address, token_file: None, generated_token: None }
    }
}

/// Opens the listener, and adds a generated token if none is configured. If `admin_listen` is not set and
/// this fails, the server runs without administration, because checks matter more. A caller token that
/// is the generated one is always an error.
pub(crate) fn open(
    setting: &'static str,
    config: &Config,
    tokens: &mut Tokens,
) -> Result<Option<(TcpListener, AdminAddress)>, StartError> {
    let (address, is_explicit) = match config.admin_listen {
        AdminListen::Off => return Ok(None),
        AdminListen::Default => (AdminListen::DEFAULT, false),
        AdminListen::At(address) => (address, true),
    };
    match listen(setting, address, config, tokens) {
        Ok((listener, about)) => {
            warn_of_clear_text(about.address, config);
            Ok(Some((listener, about)))
        }
        Err(error) if is_explicit || matches!(error, StartError::CallerToken(_)) => Err(error),
        Err(error) => {
            tracing::warn!(
                "administration: administration and /metrics are off ({error}); set admin_listen, and admin_token \
                 or RUNTIME_DIRECTORY (for a generated token)"
            );
            Ok(None)
        }
    }
}

fn listen(
    setting: &'static str,
    address: SocketAddr,
    config: &Config,
    tokens: &mut Tokens,
) -> Result<(TcpListener, AdminAddress), StartError> {
    let failed = |source| StartError::Listen { setting, address, source };
    let (listener, address) = net::bind(address).map_err(failed)?;
    let mut about = AdminAddress::new(address);
    if !tokens.has_administrators() {
        let directory = config.runtime_directory.as_ref();
        let generated = token_file::reuse_or_generate(directory, address.port())?;
        let added = tokens.add(&generated.token, TokenRole::Admin);
        added.map_err(|_| StartError::CallerToken(generated.path.clone()))?;
        (about.token_file, about.generated_token) = (Some(generated.path), Some(generated.token));
    }
    Ok((listener, about))
}

fn warn_of_clear_text(address: SocketAddr, config: &Config) {
    if config.tls.is_none() && !address.ip().to_canonical().is_loopback() {
        tracing::warn!(
            "administration: admin_listen={address} is reachable from other machines without TLS, so tokens \
             travel in clear text; set tls_certificate and tls_key"
        );
    }
}
