//! LiteLLM's proxy with the files of `deploy/litellm`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use trypema_testkit::redis::wait_until;

use crate::client::{Client, Reply};
use crate::proxy::{Proxy, replace_once};
use crate::text_of;

use super::model::Model;

/// `cargo xtask test` installs it there.
const INSTALLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/servers");
const DIRECTORY: &str = "litellm-1.100.0";
const RUN: &str = "import litellm; litellm.run_server()";

/// Takes each `sk-NAME` as the API key `NAME`: virtual keys need a database.
const AUTHENTICATOR: &str = "
from litellm.proxy._types import UserAPIKeyAuth

async def authenticate(request, api_key):
    return UserAPIKeyAuth(api_key=api_key.removeprefix('sk-'))
";

/// Denies one model, as the limits of LiteLLM itself do. LiteLLM then runs all hooks again for the fallback.
const LIMITER: &str = "
from litellm.integrations.custom_logger import CustomLogger
from litellm.proxy.common_utils.proxy_rate_limit_error import ProxyRateLimitError

class Limiter(CustomLogger):
    async def async_pre_call_hook(self, user_api_key_dict, cache, data, call_type):
        if data.get('model') == 'denied-with-fallback':
            raise ProxyRateLimitError('denied by another hook')

limiter = Limiter()
";

/// The models of the test, beside the sample's mock.
const MODELS: &str = "
  - {model_name: slow, litellm_params: {model: hosted_vllm/slow, api_base: http://MODEL/v1}}
  - {model_name: breaking, litellm_params: {model: hosted_vllm/breaking, api_base: http://MODEL/v1}}
  - {model_name: failing, litellm_params: {model: hosted_vllm/failing, api_base: http://MODEL/v1}}
  - {model_name: failing-with-fallback, litellm_params: {model: hosted_vllm/failing, api_base: http://MODEL/v1}}
  - {model_name: denied-with-fallback, litellm_params: {model: hosted_vllm/failing, api_base: http://MODEL/v1}}
  - model_name: slow-with-keepalives
    litellm_params: {model: hosted_vllm/slow, api_base: http://MODEL/v1, keepalive_seconds: 1}
  - {model_name: hanging, litellm_params: {model: hosted_vllm/hanging, api_base: http://MODEL/v1}}
  - {model_name: obedient, litellm_params: {model: openai/obedient, api_base: http://MODEL/v1, api_key: unused}}
  - model_name: completing
    litellm_params: {model: text-completion-openai/obedient, api_base: http://MODEL/v1, api_key: unused}
";

pub struct LiteLlm {
    pub model: Model,
    proxy: Proxy,
}

impl LiteLlm {
    /// Starts it with a hook that asks the server at `trypema`, and has these settings.
    pub fn start(trypema: SocketAddr, settings: &[(&str, &str)]) -> Self {
        let model = Model::start();
        let proxy = Proxy::start(|directory, port| {
            let mut command = command(directory, port, trypema, model.address);
            command.envs(settings.iter().copied());
            command
        });
        Self { model, proxy }
    }

    /// Sends a request on a new connection, with the API key `key`.
    pub fn post(&self, path: &str, key: &str, request: &Value) -> Reply {
        self.send(path, key, &[("content-type", "application/json")], &request.to_string())
    }

    /// Sends a request with these headers and an API key.
    pub fn send(&self, path: &str, key: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let authorization = format!("Bearer sk-{key}");
        let headers = [&[("authorization", authorization.as_str())], headers].concat();
        Client::connect(self.proxy.address).send("POST", path, &headers, body)
    }

    /// Sends a chat request, and returns the events of its response. Dropping them closes the connection.
    pub fn stream(&self, key: &str, request: &Value) -> impl Iterator<Item = Value> + use<> {
        let mut stream = TcpStream::connect(self.proxy.address).unwrap();
        let body = request.to_string();
        write!(
            stream,
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer sk-{key}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        // The other lines, such as the sizes of chunks, are of no interest.
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        lines.filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
    }

    /// Returns the log of LiteLLM and of the hook.
    pub fn log(&self) -> String {
        self.proxy.log()
    }

    /// Stops it while calls are running: the second signal does not wait for them.
    pub fn interrupt(&self) {
        self.proxy.signal("INT");
        wait_until("the proxy to notice the signal", || self.log().contains("Shutting down")).unwrap();
        self.proxy.signal("INT");
    }
}

fn command(directory: &Path, port: u16, trypema: SocketAddr, model: SocketAddr) -> Command {
    let mut config = text_of("litellm/config.yaml");
    let models = MODELS.replace("MODEL", &model.to_string());
    replace_once(
        &mut config,
        "\nlitellm_settings:",
        &format!("{models}\nlitellm_settings:\n  num_retries: 1"),
    );
    replace_once(
        &mut config,
        "\ngeneral_settings:\n  master_key: os.environ/LITELLM_MASTER_KEY",
        "  fallbacks: [{failing-with-fallback: [mock]}, {denied-with-fallback: [mock]}]\n\n\
         router_settings: {retry_after: 0}\n\n\
         general_settings:\n  custom_auth: authenticator.authenticate",
    );
    replace_once(
        &mut config,
        "callbacks: trypema_hook.trypema_hook",
        "callbacks: [trypema_hook.trypema_hook, limiter.limiter]",
    );
    fs::write(directory.join("config.yaml"), config).unwrap();
    fs::write(directory.join("limiter.py"), LIMITER).unwrap();
    fs::write(directory.join("authenticator.py"), AUTHENTICATOR).unwrap();
    for name in ["trypema_hook.py", "trypema_request.py"] {
        fs::write(directory.join(name), text_of(&format!("litellm/{name}"))).unwrap();
    }
    let mut command = Command::new("python3");
    for (name, _) in std::env::vars_os() {
        let of_the_user = ["TRYPEMA_", "LITELLM_", "ANTHROPIC_", "HTTP", "ALL_PROXY", "http", "all_proxy"];
        if of_the_user.iter().any(|start| name.to_string_lossy().starts_with(start)) {
            command.env_remove(name);
        }
    }
    command.env("PYTHONPATH", installed()).env("TRYPEMA_URL", format!("http://{trypema}"));
    // The machine may be busy.
    command.env("TRYPEMA_TIMEOUT_SECONDS", "10");
    command.env("ANTHROPIC_API_BASE", format!("http://{model}")).env("ANTHROPIC_API_KEY", "unused");
    // The list of prices would be downloaded.
    command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
    command.args(["-c", RUN, "--config", "config.yaml", "--host", "127.0.0.1", "--port", &port.to_string()]);
    command
}

fn installed() -> PathBuf {
    let servers = std::env::var_os("TRYPEMA_SERVERS").map_or_else(|| INSTALLED.into(), PathBuf::from);
    let directory = servers.join(DIRECTORY);
    assert!(directory.is_dir(), "{} is missing: `cargo xtask test` installs it", directory.display());
    directory
}
