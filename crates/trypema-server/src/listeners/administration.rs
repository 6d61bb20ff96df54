//! The administration listener: its address and its tokens.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::Socket;
use crate::config::Config;
use crate::secret::Secret;
use crate::settings::AdminListen;
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

/// Opens the listener, and adds a generated token if none is configured. If `admin_listen` is not set and
/// this fails, the server runs without administration, because checks matter more. A caller token that
/// is the generated one is always an error.
pub(super) fn open(
    setting: &'static str,
    config: &Config,
    tokens: &mut Tokens,
) -> Result<Option<Socket>, StartError> {
    let (address, is_explicit) = match config.admin_listen {
        Some(AdminListen::Off) => return Ok(None),
        None => (AdminListen::DEFAULT, false),
        Some(AdminListen::At(address)) => (address, true),
    };
    match listen(setting, address, config, tokens) {
        Ok(socket) => {
            warn_of_clear_text(socket.address, config);
            Ok(Some(socket))
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
) -> Result<Socket, StartError> {
    let mut socket = Socket::bind(setting, address)?;
    let mut about = AdminAddress { address: socket.address, token_file: None, generated_token: None };
    if !tokens.has_administrators() {
        let directory = config.runtime_directory.as_ref();
        let generated = token_file::reuse_or_generate(directory, socket.address.port())?;
        let added = tokens.add(&generated.token, TokenRole::Admin);
        added.map_err(|_| StartError::CallerToken(generated.path.clone()))?;
        (about.token_file, about.generated_token) = (Some(generated.path), Some(generated.token));
    }
    socket.admin = Some(about);
    Ok(socket)
}

fn warn_of_clear_text(address: SocketAddr, config: &Config) {
    if config.tls.is_none() && !address.ip().to_canonical().is_loopback() {
        tracing::warn!(
            "administration: admin_listen={address} is reachable from other machines without TLS, so tokens \
             travel in clear text; set tls_certificate and tls_key"
        );
    }
}
