//! Servers that refuse to start, and their error messages.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use trypema_testkit::program::Program;
use trypema_testkit::redis::Server;

use crate::harness::{Service, trypema};

/// Returns the exit code and the output of a server that must not start. The files are in its directory.
fn refused(files: &[(&str, &str)], flags: &[&str]) -> (i32, String) {
    let mut program = Program::start(|directory: &Path| {
        for (name, text) in files {
            fs::write(directory.join(name), text).unwrap();
        }
        let mut command = trypema();
        command.current_dir(directory).args(["serve", "--listen", "127.0.0.1:0"]).args(flags);
        command
    })
    .unwrap();
    let code = program.end().unwrap().code().unwrap();
    (code, program.log())
}

#[test]
fn settings_that_cannot_be_used_are_named() {
    let wrong = [
        (&["--tls-key", "key.pem"][..], "tls_certificate: is required"),
        (&["--tls-certificate", "cert.pem"], "tls_key: is required"),
        (&["--tls-certificate", "none.pem", "--tls-key", "none.pem"], "none.pem"),
        (&["--provider", "redis"], "redis_url: is required"),
        (&["--provider", "hybrid"], "redis_url: is required"),
        (&["--redis-url", "http://example"], "redis"),
        (&["--redis-url", "redis://127.0.0.1", "--redis-prefix", ""], "redis_prefix"),
        (
            &["--redis-url", "redis://127.0.0.1", "--redis-url-file", "url"],
            "redis_url: set either the value or its _file variant, not both",
        ),
        (&["--redis-url-file", "missing"], "redis_url: missing"),
        (&["--admin-token", ""], "admin_token: is empty"),
        (&["--caller-token", ""], "caller_token: is empty"),
        (
            &["--caller-token", "correct-horse-caller", "--caller-token-file", "callers"],
            "caller_token: set either the value or its _file variant, not both",
        ),
        (&["--trusted-proxies", "10.0.0.0/33"], "trusted_proxies: `10.0.0.0/33`"),
        (&["--max-batch", "0"], "max_batch: need 1 to"),
        (&["--max-keys", "0"], "max_keys: need at least 1"),
        (&["--max-connections", "0"], "max_connections: need 1 to"),
        (&["--max-connections-per-peer", "0"], "max_connections_per_peer: need 1 to"),
        (&["--max-buffered-bytes", "1000000"], "max_buffered_bytes: need at least 33554432"),
        (&["--max-body-bytes", "0"], "max_body_bytes"),
        (&["--max-header-bytes", "10"], "max_header_bytes"),
        (&["--config", "missing.yaml"], "missing.yaml"),
        (&["--rules", "missing.yaml"], "missing.yaml"),
    ];
    for (flags, reason) in wrong {
        let (code, log) = refused(&[], flags);
        assert_eq!(code, 2, "{flags:?}: {log}");
        assert!(
            log.contains("trypema: ") && log.contains(reason),
            "{flags:?} does not say {reason:?}: {log}"
        );
    }
}

/// Added to the current time, or multiplied, such a duration overflows. Each of these settings has panicked
/// before, or could have.
#[test]
fn times_that_are_too_long_are_refused_by_name() {
    let help = String::from_utf8(trypema().args(["serve", "--help"]).output().unwrap().stdout).unwrap();
    let flags = help.lines().filter_map(|line| line.trim().strip_suffix(" <TIME>"));
    let flags: Vec<&str> = flags.filter_map(|line| line.split_whitespace().last()).collect();
    assert!(flags.len() >= 8 && flags.contains(&"--rules-poll"), "{flags:?}");
    for flag in flags {
        let setting = flag.trim_start_matches('-').replace('-', "_");
        for time in ["18446744073709551615s", "366d"] {
            let (code, log) = refused(&[], &[flag, time]);
            assert_eq!(code, 2, "{flag} {time}: {log}");
            let reason = format!("trypema: {setting}: need at most 365d");
            assert!(log.contains(&reason), "{flag} {time} does not say {reason:?}: {log}");
        }
    }
}

/// The longest allowed durations do not overflow.
#[test]
fn the_longest_times_are_served() {
    let redis = Server::start().unwrap();
    let mut service = Service::of(|directory| {
        let config = directory.join("trypema.yaml");
        let names =
            ["redis_deadline", "header_timeout", "request_timeout", "idle_timeout", "shutdown_deadline"];
        let times: String = names.iter().map(|name| format!("{name}: 365d\n")).collect();
        fs::write(&config, format!("{times}redis_url: {}\n", redis.url())).unwrap();
        let mut command = trypema();
        command.args(["serve", "--listen", "127.0.0.1:0", "--provider", "hybrid", "--config"]).arg(config);
        command
    });
    let question = r#"{"attributes": {"user": "ann"}}"#;
    assert_eq!(service.post("/v1/check", question).json()["allowed"], true);
    assert!(service.stop().success());
    assert!(!service.program.log().contains("panicked"), "{}", service.program.log());
}

#[test]
fn a_configuration_file_is_refused_by_name_and_line() {
    let wrong = [
        ("max_batch: 5\ncolour: red\n", "trypema.yaml:2: colour: unknown field: need one of listen, "),
        (
            "max_batch: 5\n\nmax_keys: many\n",
            "trypema.yaml:3: max_keys: need a whole number from 0 to 18446744073709551615, not \"many\"",
        ),
        ("provider: paper\n", "trypema.yaml:1: provider: need one of memory, redis, hybrid, not \"paper\""),
        ("max_batch: [1\n", "trypema.yaml:"),
        ("- max_batch\n", "trypema.yaml:1: need a mapping, not a list"),
        ("redis_deadline: soon\n", "trypema.yaml:1: redis_deadline: invalid length of time \"soon\""),
        ("redis_deadline: 50\n", "trypema.yaml:1: redis_deadline: `50` needs a unit, for example `50s`"),
        ("max_batch: 5\nmax_batch: 6\n", "trypema.yaml:2: max_batch: written twice, first in line 1"),
        ("max_batch: 5\nmax_keys: 0\n", "trypema.yaml:2: max_keys: need at least 1"),
    ];
    for (text, reason) in wrong {
        let (code, log) = refused(&[("trypema.yaml", text)], &["--config", "trypema.yaml"]);
        assert_eq!(code, 2, "{text:?}: {log}");
        assert!(log.contains(reason), "{text:?} does not say {reason:?}: {log}");
    }
}

/// Flags, variables and the file, wrong types and wrong numbers: one start names them all.
#[test]
fn all_wrong_settings_are_told_at_once() {
    let file = "\
redis_deadline: 50
max_kyes: 5
provider: paper
header_timeout: 10 s
max_header_bytes: 10
max_body_bytes: 0
forward_auth:
  profiles:
    web: {cost: 0, attributes: {user: x-user, plan: {heder: X-Plan}}}
";
    let mut program = Program::start(|directory: &Path| {
        fs::write(directory.join("trypema.yaml"), file).unwrap();
        let mut command = trypema();
        command.current_dir(directory).args(["serve", "--listen", "everywhere", "--sync-interval=1"]);
        command.args(["--max-keys", "0", "--config", "trypema.yaml"]);
        command.env("TRYPEMA_INSTANCES", "many").env("TRYPEMA_MAX_BATCH", "0");
        command
    })
    .unwrap();
    let code = program.end().unwrap().code().unwrap();
    let log = program.log();
    assert_eq!(code, 2, "{log}");
    let expected = [
        "trypema: listen: invalid value \"everywhere\": invalid socket address syntax (given as --listen)",
        "sync_interval: `1` needs a unit, for example `1s` (given as --sync-interval)",
        "instances: invalid value \"many\": invalid digit found in string (given as TRYPEMA_INSTANCES)",
        "trypema.yaml:1: redis_deadline: `50` needs a unit, for example `50s`",
        "trypema.yaml:2: max_kyes: unknown field: need one of ",
        "trypema.yaml:3: provider: need one of memory, redis, hybrid, not \"paper\"",
        "trypema.yaml:4: header_timeout: invalid length of time \"10 s\"",
        "trypema.yaml:9: forward_auth.profiles.web.attributes.user: for the header write {header: x-user}",
        "trypema.yaml:9: forward_auth.profiles.web.attributes.plan.heder: unknown field: need one of header, value",
        "trypema.yaml:9: forward_auth.profiles.web.cost: need at least 1",
        "max_keys: need at least 1 (given as --max-keys)",
        "trypema.yaml:5: max_header_bytes: need 8192 to",
        "trypema.yaml:6: max_body_bytes: need 1 to",
        "max_batch: need 1 to 10000 (given as TRYPEMA_MAX_BATCH)",
    ];
    let missing: Vec<_> = expected.iter().filter(|expected| !log.contains(**expected)).collect();
    assert!(missing.is_empty(), "{missing:#?} are not in\n{log}");
    assert_eq!(log.lines().count(), expected.len(), "{log}");
}

#[test]
fn a_profile_is_refused_by_the_name_of_its_field() {
    let many: Vec<String> = (0..29).map(|number| format!("a{number}: {{value: x}}")).collect();
    let many = format!("a: {{attributes: {{{}}}}}", many.join(", "));
    let (long_name, long_value) = ("n".repeat(65), "v".repeat(8 * 1024 + 1));
    let (long_profile, long_attribute, long_literal) = (
        format!("{long_name}: {{}}"),
        format!("a: {{attributes: {{{long_name}: {{value: x}}}}}}"),
        format!("a: {{attributes: {{x: {{value: {long_value}}}}}}}"),
    );
    let wrong = [
        ("Web: {}", "forward_auth.profiles.Web: a profile's name needs"),
        ("'a/b': {}", "forward_auth.profiles.a/b: a profile's name needs"),
        ("'': {}", "forward_auth.profiles.: a profile's name needs"),
        (&long_profile, "a profile's name needs 1 to 64"),
        ("a: {cost: 0}", "forward_auth.profiles.a.cost: need at least 1"),
        ("a: {deny_status: 200}", "forward_auth.profiles.a.deny_status: need a status from 400 to 499"),
        ("a: {deny_status: 204}", "forward_auth.profiles.a.deny_status"),
        ("a: {deny_status: 302}", "forward_auth.profiles.a.deny_status"),
        ("a: {deny_status: 101}", "forward_auth.profiles.a.deny_status"),
        ("a: {deny_status: 407}", "forward_auth.profiles.a.deny_status"),
        ("a: {deny_status: 503}", "forward_auth.profiles.a.deny_status"),
        ("a: {deny_status: 99999}", "trypema.yaml:1: forward_auth.profiles.a"),
        ("a: {cost: -1}", "trypema.yaml:1: forward_auth.profiles.a"),
        ("a: {headers: loud}", "loud"),
        ("a: {colour: red}", "colour"),
        ("a: {}, a: {cost: 2}", "trypema.yaml:1: forward_auth.profiles.a"),
        (
            "a: {attributes: {user: {}}}",
            "forward_auth.profiles.a.attributes.user: need either `header` or `value`",
        ),
        ("a: {attributes: {user: {header: X-A, value: b}}}", "need either `header` or `value`"),
        (
            "a: {attributes: {user: null}}",
            "attributes.user: `null` removes `endpoint`, `method`, `host` or `ip`",
        ),
        (
            "a: {attributes: {user: {header: X-A}, user: {header: X-B}}}",
            "trypema.yaml:1: forward_auth.profiles.a",
        ),
        ("a: {attributes: {user: {cookie: sid}}}", "cookie"),
        ("a: {attributes: {user: x-user}}", "trypema.yaml:1: forward_auth.profiles.a"),
        (
            "a: {attributes: {'us er': {value: x}}}",
            "forward_auth.profiles.a.attributes.us er: an attribute's name",
        ),
        (&long_attribute, "an attribute's name needs 1 to 64"),
        ("a: {attributes: {user: {header: 'X User'}}}", "`X User` cannot be the name of a header"),
        ("a: {attributes: {user: {header: ''}}}", "cannot be the name of a header"),
        ("a: {attributes: {user: {header: X_User}}}", "`X_User`: nginx drops headers with `_`"),
        ("a: {attributes: {user: {header: Cookie}}}", "`Cookie` holds several values"),
        ("a: {attributes: {user: {header: authorization}}}", "`authorization` holds several values"),
        ("a: {attributes: {ip: {header: X-Forwarded-For}}}", "`X-Forwarded-For` holds several values"),
        ("a: {attributes: {user: {value: ''}}}", "forward_auth.profiles.a.attributes.user: value: need 1 to"),
        (&long_literal, "value: need 1 to 8192 bytes"),
        ("a: {attributes: {endpoint: {value: login}}}", "attributes.endpoint: value: need a path"),
        ("a: {attributes: {ip: {value: localhost}}}", "attributes.ip: value: need an address"),
        (&many, "forward_auth.profiles.a.attributes: a request has at most 32"),
    ];
    for (profiles, reason) in wrong {
        let text = format!("forward_auth: {{profiles: {{{profiles}}}}}");
        let (code, log) = refused(&[("trypema.yaml", &text)], &["--config", "trypema.yaml"]);
        assert_eq!(code, 2, "{profiles:.80}: {log}");
        assert!(log.contains(reason), "{profiles:.80} does not say {reason:?}: {log}");
    }
}

/// An error names the faulty line, but does not quote a secret in it.
#[test]
fn what_is_wrong_with_a_file_tells_no_secret() {
    let files = [
        "admin_token: hunter2\ncolour: red\n",
        "colour: red\nadmin_token: hunter2\n",
        "redis_url: redis://:hunter2@127.0.0.1\nmax_batch: many\n",
        "admin_token: [hunter2]\n",
        "admin_token: {token: hunter2}\n",
        "caller_token: [hunter2]\n",
        "caller_token: hunter2\n",
        "admin_token: hunter2-and-longer\ncaller_token: hunter2-and-longer\n",
        "redis_url: hunter2\n",
        "redis_url: redis://:hunter2@127.0.0.1:port\n",
        "redis_url: redis://:hunter2@127.0.0.1\nredis_url: redis://:hunter2@127.0.0.2\n",
    ];
    for text in files {
        let (code, log) = refused(&[("trypema.yaml", text)], &["--config", "trypema.yaml"]);
        assert_eq!(code, 2, "{text:?}: {log}");
        assert!(!log.contains("hunter2"), "{text:?}: {log}");
    }
}

#[test]
fn invalid_rules_are_told_with_line_and_reason() {
    let rules =
        "rules:\n  - id: a\n    scope: global\n    strategy: {fixed_window: {limit: 0, window: 1h}}\n";
    let (code, log) = refused(&[("rules.yaml", rules)], &["--rules", "rules.yaml"]);
    assert_ne!(code, 0, "{log}");
    assert!(log.contains("rules.yaml:4: ") && log.contains("invalid limit 0"), "{log}");
}

#[test]
fn a_port_that_is_taken_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut program = Program::start(|_| {
        let mut command = trypema();
        command.args(["serve", "--listen", &address]);
        command
    })
    .unwrap();
    assert!(!program.end().unwrap().success());
    let log = program.log();
    assert!(log.contains(&format!("listen: {address}")) && log.contains("in use"), "{log}");
}

/// A retry cannot help if Redis refuses the password. The message does not contain the password.
#[test]
fn a_redis_that_refuses_the_login_ends_the_start() {
    let redis = Server::builder().password("right-password").start().unwrap();
    let url = format!("redis://:hunter2@127.0.0.1:{}", redis.port());
    let (code, log) = refused(&[], &["--redis-url", &url]);
    assert_ne!(code, 0, "{log}");
    assert!(log.contains("redis") && log.contains("password"), "{log}");
    assert!(!log.contains("hunter2"), "{log}");
}

/// A value for which no placeholder fits hides no other problem, and causes none.
#[test]
fn a_wrong_list_of_attributes_hides_no_other_problem() {
    for attributes in ["5", "[plan]", "[plan=a, plan=b]"] {
        let config = format!(
            "redis_url: redis://127.0.0.1:1\nmax_batch: many\nforward_auth:\n  profiles:\n    \
             shop: {{attributes: {attributes}}}\n"
        );
        let flags = ["--config", "config.yaml", "--provider", "redis"];
        let (code, log) = refused(&[("config.yaml", &config)], &flags);
        assert_eq!(code, 2, "{log}");
        for expected in ["forward_auth.profiles.shop.attributes", "max_batch"] {
            assert!(log.contains(expected), "{attributes}: {log}");
        }
        assert!(!log.contains("redis_url"), "{attributes}: {log}");
    }
}
