//! The HTTP client of the command line.

use std::fmt::Display;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, StatusCode, Uri};
use serde_json::Value;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::secret::Secret;
use crate::token_file;

/// The timeout of a request: longer than the server's own timeout of a change.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum size of a response: enough for a rule set or its history.
const MAX_RESPONSE: u64 = 256 * 1024 * 1024;

/// The check listener of a server.
#[derive(Debug, clap::Args)]
pub(super) struct CheckService {
    /// Address of the check listener
    #[arg(long, env = "TRYPEMA_SERVER", default_value = "http://127.0.0.1:8080", value_name = "URL")]
    server: String,
    /// Token, if the server has caller tokens
    #[arg(long, env = "TRYPEMA_CALLER_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    caller_token: Option<Secret>,
    /// File that holds the token
    #[arg(long, env = "TRYPEMA_CALLER_TOKEN_FILE", value_name = "FILE")]
    caller_token_file: Option<PathBuf>,
    /// Certificate authority to trust (PEM), instead of the public ones
    #[arg(long, env = "TRYPEMA_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Print the server's JSON response
    #[arg(long)]
    pub(super) json: bool,
}

/// The administration listener of a server.
#[derive(Debug, clap::Args)]
pub(super) struct AdminService {
    /// Address of the administration listener (the server's setting `admin_listen`)
    #[arg(long, env = "TRYPEMA_ADMIN_SERVER", default_value = "http://127.0.0.1:8081", value_name = "URL")]
    server: String,
    /// Token; not needed for a server on this machine that generated its own
    #[arg(long, env = "TRYPEMA_ADMIN_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    admin_token: Option<Secret>,
    /// File that holds the token
    #[arg(long, env = "TRYPEMA_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// Certificate authority to trust (PEM), instead of the public ones
    #[arg(long, env = "TRYPEMA_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
}

/// A request to the server.
pub(super) struct Call<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) body: Option<&'a Value>,
    /// The revision for `If-Match`.
    pub(super) revision: Option<u64>,
    pub(super) accept: &'static str,
}

impl<'a> Call<'a> {
    pub(super) fn new(method: Method, path: &'a str) -> Self {
        Self { method, path, body: None, revision: None, accept: "application/json" }
    }

    /// Creates a POST request with a JSON body.
    pub(super) fn post(path: &'a str, body: &'a Value) -> Self {
        Self { body: Some(body), ..Self::new(Method::POST, path) }
    }
}

impl CheckService {
    /// Sends a request, and returns the JSON response.
    pub(super) fn call(&self, call: &Call<'_>) -> Result<Value, String> {
        let token = given_token(self.caller_token.as_ref(), self.caller_token_file.as_deref())?;
        let token_hint = "--caller-token-file or TRYPEMA_CALLER_TOKEN";
        ServerClient { server: &self.server, token, token_hint, ca: self.ca.as_ref() }.json(call)
    }
}

impl AdminService {
    /// Sends a request, and returns the JSON response.
    pub(super) fn call(&self, call: &Call<'_>) -> Result<Value, String> {
        self.client()?.json(call)
    }

    /// Sends a request, and returns the body of a successful response.
    pub(super) fn text(&self, call: &Call<'_>) -> Result<String, String> {
        self.client()?.text(call)
    }

    fn client(&self) -> Result<ServerClient<'_>, String> {
        let token = match given_token(self.admin_token.as_ref(), self.admin_token_file.as_deref())? {
            // A server on this machine may have generated one.
            None if self.admin_token_file.is_none() => loopback_port(&self.server).and_then(token_file::find),
            given => given,
        };
        let token_hint = "--admin-token-file or TRYPEMA_ADMIN_TOKEN";
        Ok(ServerClient { server: &self.server, token, token_hint, ca: self.ca.as_ref() })
    }
}

/// Returns the given token; or the last word of the first line of the given file, because a name may precede
/// the token.
fn given_token(token: Option<&Secret>, file: Option<&Path>) -> Result<Option<Secret>, String> {
    let Some(file) = file.filter(|_| token.is_none()) else { return Ok(token.cloned()) };
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(text.lines().find_map(|line| line.split_whitespace().last()).map(Secret::from))
}

/// Returns the port of a URL that leads to this machine. A generated token is sent nowhere else.
fn loopback_port(server: &str) -> Option<u16> {
    let uri: Uri = server.parse().ok()?;
    let host = uri.host()?.trim_matches(['[', ']']);
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    let is_this_machine = host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(is_loopback);
    let default_port = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    is_this_machine.then(|| uri.port_u16().unwrap_or(default_port))
}

/// A listener of a server, with the token and the certificate authority to reach it.
struct ServerClient<'a> {
    server: &'a str,
    token: Option<Secret>,
    /// The flag and the variable that give a token.
    token_hint: &'static str,
    ca: Option<&'a PathBuf>,
}

impl ServerClient<'_> {
    fn json(&self, call: &Call<'_>) -> Result<Value, String> {
        let text = self.text(call)?;
        serde_json::from_str(&text).map_err(|_| format!("{}: the response is not JSON", self.url(call)))
    }

    fn text(&self, call: &Call<'_>) -> Result<String, String> {
        let url = self.url(call);
        let failed = |error: &dyn Display| format!("{url}: {error}");
        let mut request =
            Request::builder().method(call.method.clone()).uri(&url).header("accept", call.accept);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {}", token.reveal()));
        }
        if let Some(revision) = call.revision {
            request = request.header("if-match", format!("\"{revision}\""));
        }
        let agent = self.agent()?;
        let response = match call.body {
            Some(body) => {
                let request = request.header("content-type", "application/json").body(body.to_string());
                agent.run(request.map_err(|error| failed(&error))?)
            }
            None => agent.run(request.body(()).map_err(|error| failed(&error))?),
        };
        let mut response = response.map_err(|error| self.connection_error(&error))?;
        let status = response.status();
        let body = response.body_mut().with_config().limit(MAX_RESPONSE).read_to_string();
        let body = body.map_err(|error| failed(&error))?;
        if status.is_success() {
            return Ok(body);
        }
        Err(format!("{url}: {}", self.error_message(status, &body)))
    }

    fn url(&self, call: &Call<'_>) -> String {
        format!("{}{}", self.server.trim_end_matches('/'), call.path)
    }

    /// Describes why there is no response, and what to do about it.
    fn connection_error(&self, error: &ureq::Error) -> String {
        let server = self.server;
        match error {
            ureq::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => format!(
                "{server}: connection refused: no server listens there; start one with `trypema serve`, \
                 or name another with --server"
            ),
            _ => format!("{server}: {error}; --server names another server"),
        }
    }

    /// Describes an error response, and what to do about it.
    fn error_message(&self, status: StatusCode, body: &str) -> String {
        let response: Value = serde_json::from_str(body).unwrap_or_default();
        let mut message = status.to_string();
        if let Some(detail) = response["detail"].as_str() {
            message += &format!(": {detail}");
        }
        if status == StatusCode::UNAUTHORIZED && self.token.is_none() {
            message += &format!(" (no token was found: give one with {})", self.token_hint);
        }
        message
    }

    fn agent(&self) -> Result<Agent, String> {
        let mut config = Agent::config_builder()
            .timeout_global(Some(REQUEST_TIMEOUT))
            .http_status_as_error(false)
            .allow_non_standard_methods(true);
        if loopback_port(self.server).is_some() {
            // A proxy named by HTTP_PROXY cannot reach this machine's loopback, and must not see its token.
            config = config.proxy(None);
        }
        if let Some(file) = self.ca {
            let failed = |error: &dyn Display| format!("{}: {error}", file.display());
            let pem = fs::read(file).map_err(|error| failed(&error))?;
            let certificate = Certificate::from_pem(&pem).map_err(|error| failed(&error))?;
            let roots = RootCerts::Specific(Arc::new(vec![certificate.to_owned()]));
            config = config.tls_config(TlsConfig::builder().root_certs(roots).build());
        }
        Ok(config.build().new_agent())
    }
}

/// Percent-encodes everything but letters, digits and `-_.=`.
pub(super) fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.=".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_tokens_are_for_this_machine_only() {
        for (server, port) in [
            ("http://127.0.0.1:8081", Some(8081)),
            ("http://localhost:8081/", Some(8081)),
            ("https://[::1]:9", Some(9)),
            ("http://127.0.0.1", Some(80)),
            ("http://limits.example:8081", None),
            ("http://127.0.0.1.evil.example:8081", None),
            ("http://localhost@evil.example:8081", None),
            ("http://10.0.0.1:8081", None),
            ("nonsense", None),
        ] {
            assert_eq!(loopback_port(server), port, "{server}");
        }
    }
}
