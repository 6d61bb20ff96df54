//! The command line, as new users and scripts use it.

#[path = "cli/admin_token.rs"]
mod admin_token;
#[path = "cli/asking.rs"]
mod asking;
#[path = "cli/caller_token.rs"]
mod caller_token;
#[path = "cli/keys.rs"]
mod keys;
#[path = "cli/refusals.rs"]
mod refusals;
#[path = "cli/reservations.rs"]
mod reservations;
#[path = "cli/rules.rs"]
mod rules;
#[path = "cli/settings.rs"]
mod settings;
#[path = "cli/starting.rs"]
mod starting;

use std::ffi::OsStr;
use std::process::Output;

use crate::harness::trypema;

/// The output and the exit code of a command.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

/// Runs a command to its end.
fn run(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Ran {
    trypema().args(arguments).output().unwrap().into()
}

#[test]
fn help_teaches() {
    let told = [
        (
            &["--help"][..],
            &[
                "serve",
                "check",
                "reserve",
                "settle",
                "release",
                "renew",
                "explain",
                "rules",
                "completions",
                "Try it:",
                "trypema serve --rules",
            ][..],
        ),
        (
            &["serve", "--help"],
            &[
                "built-in demonstration rules",
                "127.0.0.1:8080",
                "Flags override variables",
                "SIGHUP",
                "SIGTERM",
                "--redis-url",
                "TRYPEMA_REDIS_URL",
                "[default: 50ms]",
            ],
        ),
        (
            &["check", "--help"],
            &[
                "user=ann",
                "--cost",
                "--server",
                "nothing is spent",
                "TRYPEMA_SERVER",
                "--caller-token-file",
                "TRYPEMA_CALLER_TOKEN",
            ],
        ),
        (
            &["reserve", "--help"],
            &["user=ann", "--cost", "--ttl", "[default: 60s]", "--id", "--server", "TRYPEMA_CALLER_TOKEN"],
        ),
        (&["settle", "--help"], &["tokens=1830", "keeps its estimate", "--server"]),
        (&["release", "--help"], &["`trypema reserve` printed it", "--server"]),
        (&["renew", "--help"], &["--ttl", "at most 1h", "--server"]),
        (&["keys", "--help"], &["show", "release", "reservations that hold units"]),
        (
            &["redis", "acl", "--help"],
            &["--provider", "--cache", "--user", "exactly the permissions", "redis-cli"],
        ),
        (&["explain", "--help"], &["--rules", "as if nothing had been spent", "--server"]),
        (&["rules", "--help"], &["validate", "schema"]),
        (&["rules", "validate", "--help"], &["with lines", "exit code 0"]),
        (&["rules", "schema", "--help"], &["JSON Schema", "editors"]),
        (&["completions", "--help"], &["bash", "zsh", "fish"]),
    ];
    for (arguments, sentences) in told {
        let ran = run(arguments);
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{arguments:?}");
        let words = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
        for sentence in sentences {
            assert!(words.contains(sentence), "{arguments:?} does not say {sentence:?}:\n{}", ran.out);
        }
    }
}

/// Help shows the values of environment variables, except secrets.
#[test]
fn help_shows_no_secrets() {
    for command in [&["serve"][..], &["check"], &["redis", "acl"]] {
        let mut help = trypema();
        help.env("TRYPEMA_ADMIN_TOKEN", "hunter2").env("TRYPEMA_REDIS_URL", "redis://:hunter2@example");
        help.env("TRYPEMA_CALLER_TOKEN", "hunter2").env("TRYPEMA_REDIS_USER_PASSWORD", "hunter2");
        let ran = Ran::from(help.args(command).arg("--help").output().unwrap());
        assert!(!ran.out.contains("hunter2"), "{}", ran.out);
    }
}

#[test]
fn what_is_no_command_line_ends_with_2_and_a_hint() {
    let wrong = [
        (&[][..], "Usage"),
        (&["sevre"], "serve"),
        (&["serve", "--colour"], "--colour"),
        (&["serve", "--listen", "here"], "--listen"),
        (&["serve", "--redis-deadline", "soon"], "soon"),
        (&["serve", "--provider", "paper"], "memory"),
        (&["check", "ann"], "user=ann"),
        (&["check", "user=ann", "--cost", "few"], "--cost"),
        (&["rules", "validate"], "FILE"),
        (&["completions", "ksh"], "ksh"),
    ];
    for (arguments, hint) in wrong {
        let ran = run(arguments);
        assert_eq!(ran.code, Some(2), "{arguments:?}: {ran:?}");
        assert!(ran.err.contains(hint), "{arguments:?}: {}", ran.err);
    }
}

#[test]
fn shells_complete_what_there_is() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ran = run(["completions", shell]);
        assert_eq!(ran.code, Some(0));
        for word in ["serve", "validate", "redis-url"] {
            assert!(ran.out.contains(word), "{shell} does not know {word}");
        }
    }
}

#[test]
fn the_version_is_told() {
    let ran = run(["--version"]);
    assert_eq!((ran.code, ran.out.trim()), (Some(0), concat!("trypema ", env!("CARGO_PKG_VERSION"))));
}
