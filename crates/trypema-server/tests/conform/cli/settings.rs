//! The precedence of settings (flags, then environment variables, then the file, then defaults), and secrets
//! that stay secret.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::client::Reply;
use crate::harness::{Service, trypema};

/// Starts a server with settings in its file, as environment variables, and as flags.
fn serve(file: &str, variables: &[(&str, &str)], flags: &[&str]) -> Service {
    Service::of(|directory| {
        let mut command = configured(directory, file);
        command.envs(variables.iter().copied()).args(flags);
        command
    })
}

fn configured(directory: &Path, file: &str) -> Command {
    let config = directory.join("trypema.yaml");
    fs::write(&config, file).unwrap();
    let mut command = trypema();
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(config);
    command
}

/// Returns the largest number of requests that the server accepts in a batch.
fn batch(service: &Service) -> usize {
    let mut client = service.client();
    let fits = |size: &usize| {
        let body = json!(vec![json!({"attributes": {}}); *size]).to_string();
        client.send("POST", "/v1/check", &[], &body).status == 200
    };
    (1..10).take_while(fits).count()
}

#[test]
fn flags_count_before_variables_and_those_before_the_file() {
    let variable = [("TRYPEMA_MAX_BATCH", "3")];
    assert_eq!(batch(&serve("", &[], &[])), 9, "the default is more");
    assert_eq!(batch(&serve("max_batch: 2", &[], &[])), 2);
    assert_eq!(batch(&serve("max_batch: 2", &variable, &[])), 3);
    assert_eq!(batch(&serve("max_batch: 2", &variable, &["--max-batch", "4"])), 4);
}

fn forwarded(service: &Service, headers: &[(&str, &str)]) -> Reply {
    let headers = [&[("x-forwarded-uri", "/"), ("x-forwarded-for", "203.0.113.1")], headers].concat();
    service.client().send("GET", "/v1/forward-auth", &headers, "")
}

#[test]
fn lists_are_replaced_as_a_whole() {
    let file = "trusted_proxies: [10.0.0.0/8, 127.0.0.1]";
    let status = |service: Service| forwarded(&service, &[]).status;
    assert_eq!(status(serve("", &[], &[])), 200, "loopback is trusted by default");
    assert_eq!(status(serve("trusted_proxies: [10.0.0.0/8]", &[], &[])), 403);
    assert_eq!(status(serve(file, &[], &[])), 200);
    assert_eq!(status(serve(file, &[("TRYPEMA_TRUSTED_PROXIES", "10.0.0.0/8,192.0.2.1")], &[])), 403);
    let variable = [("TRYPEMA_TRUSTED_PROXIES", "10.0.0.0/8")];
    assert_eq!(status(serve(file, &variable, &["--trusted-proxies", "::1,127.0.0.0/8"])), 200);
}

#[test]
fn profiles_come_from_the_file() {
    let file = "forward_auth: {profiles: {default: {attributes: {user: {header: X-User}}}}}";
    let has_limit = |service: Service| {
        let reply = forwarded(&service, &[("x-user", "ann")]);
        reply.header("ratelimit").is_some_and(|limit| limit.contains("per-user"))
    };
    assert!(has_limit(serve(file, &[], &[])));
    assert!(!has_limit(serve("", &[], &[])), "the built-in profile reads no header but those of the request");
}

#[test]
fn the_file_itself_can_be_a_variable() {
    let service = Service::of(|directory| {
        let config = directory.join("trypema.yaml");
        fs::write(&config, "max_batch: 2").unwrap();
        let mut command = trypema();
        command.args(["serve", "--listen", "127.0.0.1:0"]).env("TRYPEMA_CONFIG", config);
        command
    });
    assert_eq!(batch(&service), 2);
}

/// A file may contain no setting or every setting.
#[test]
fn a_file_may_say_everything_or_nothing() {
    assert_eq!(serve("# nothing yet\n", &[], &[]).get("/healthz").status, 200);
    let everything = "
max_keys: 1000
max_connections: 50
max_connections_per_peer: 20
max_buffered_bytes: 33554432
max_header_bytes: 8192
max_body_bytes: 1000
header_timeout: 5s
request_timeout: 5s
idle_timeout: 1m
shutdown_delay: 10ms
shutdown_deadline: 2s
log_format: pretty
log_level: debug
log_denials: sampled
provider: memory
";
    let mut service = serve(everything, &[], &[]);
    assert_eq!(service.get("/readyz").json()["provider"], json!("memory"));
    assert!(service.stop().success());
}

fn explained(service: &Service, token: &str) -> u16 {
    let authorization = format!("Bearer {token}");
    service
        .client()
        .send("POST", "/v1/explain", &[("authorization", &authorization)], r#"{"attributes":{"user":"ann"}}"#)
        .status
}

#[test]
fn secrets_can_be_in_files() {
    for as_variable in [true, false] {
        let service = Service::of(|directory| {
            let file = directory.join("token");
            fs::write(&file, "hunter2-and-longer\n").unwrap();
            let settings = format!("admin_token_file: {}", file.display());
            let mut command = configured(directory, if as_variable { "" } else { &settings });
            if as_variable {
                command.env("TRYPEMA_ADMIN_TOKEN_FILE", file);
            }
            command
        });
        assert_eq!(
            (explained(&service, "hunter2-and-longer"), explained(&service, "hunter3-and-longer")),
            (200, 401)
        );
    }
}

/// Not at the most verbose log level, not while Redis is unreachable, and not after a wrong token.
#[test]
fn secrets_are_never_printed() {
    let mut service = Service::of(|directory| {
        let tokens = "admin_token: hunter2-and-longer\ncaller_token: hunter2-and-even-longer\n";
        let mut command = configured(directory, tokens);
        command.args(["--redis-url", "redis://default:hunter2@127.0.0.1:1/", "--log-level", "trace"]);
        command
    });
    assert_eq!((explained(&service, "hunter2-and-longer"), explained(&service, "wrong")), (503, 401));
    for (authorization, status) in [
        ("", 401),
        ("Bearer hunter2-and-shorter", 401),
        ("Bearer hunter2-and-longer", 403),
        ("Bearer hunter2-and-even-longer", 503),
    ] {
        let headers = [("authorization", authorization)];
        let reply = service.client().send("POST", "/v1/check", &headers, r#"{"attributes":{"user":"ann"}}"#);
        assert_eq!((reply.status, reply.body.contains("hunter2")), (status, false), "{reply:?}");
    }
    service.stop();
    let log = service.program.log();
    assert!(log.contains("store: Redis is unreachable"), "{log}");
    assert!(!log.contains("hunter2"), "{log}");
}

#[test]
fn a_setting_that_is_overruled_is_not_used() {
    let service = serve("provider: redis\nredis_deadline: 1ms\n", &[], &["--provider", "memory"]);
    assert_eq!(service.get("/readyz").json()["provider"], json!("memory"));
}

#[test]
fn an_empty_variable_counts_as_not_given() {
    let names = [
        "MAX_BATCH",
        "ADMIN_TOKEN",
        "CALLER_TOKEN",
        "CALLER_TOKEN_FILE",
        "REDIS_URL",
        "PROVIDER",
        "TRUSTED_PROXIES",
        "RULES",
        "TLS_KEY",
        "CONFIG",
    ];
    let names: Vec<String> = names.iter().map(|name| format!("TRYPEMA_{name}")).collect();
    let empty: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    let service = Service::of(|_| {
        let mut command = trypema();
        command.args(["serve", "--listen", "127.0.0.1:0"]).envs(empty);
        command
    });
    assert_eq!(service.get("/readyz").json()["provider"], json!("memory"));
    let generated = service.admin.as_ref().unwrap().token.clone().unwrap();
    assert_eq!((batch(&service), explained(&service, &generated)), (9, 200));
}
