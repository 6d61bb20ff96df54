//! Caller tokens, as users of the binary see them.

use std::fs;

use trypema_testkit::program::FreePort;

use super::{Ran, run};
use crate::folder::Folder;
use crate::harness::{Service, trypema};

const ADMIN: &str = "correct-horse-battery";
const CALLER: &str = "correct-horse-caller";

/// Runs `trypema check` with environment variables and flags.
fn check(service: &Service, variables: &[(&str, &str)], flags: &[&str]) -> Ran {
    let mut command = trypema();
    command.envs(variables.iter().copied()).args(["check", "user=ann", "--peek"]).args(flags);
    command.args(["--server", &format!("http://{}", service.address)]).output().unwrap().into()
}

#[test]
fn check_sends_the_caller_token_and_no_other() {
    let service = Service::start(&["--admin-token", ADMIN, "--caller-token", CALLER]);
    let folder = Folder::new();
    let file = folder.file("callers", &format!("\nshop {CALLER}\nother correct-horse-other\n"));
    let file = file.to_str().unwrap();
    let given = [
        (&[][..], &["--caller-token", CALLER][..]),
        (&[], &["--caller-token-file", file]),
        (&[("TRYPEMA_CALLER_TOKEN", CALLER)], &[]),
        (&[("TRYPEMA_CALLER_TOKEN_FILE", file), ("TRYPEMA_ADMIN_TOKEN", ADMIN)], &[]),
    ];
    for (variables, flags) in given {
        let ran = check(&service, variables, flags);
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{variables:?} {flags:?}: {ran:?}");
    }
    let missing = check(&service, &[("TRYPEMA_ADMIN_TOKEN", ADMIN)], &[]);
    assert_eq!(missing.code, Some(2), "{missing:?}");
    for part in ["401", "this needs a caller token", "--caller-token-file or TRYPEMA_CALLER_TOKEN"] {
        assert!(missing.err.contains(part), "{part} is not in {}", missing.err);
    }
    for (token, part) in [(ADMIN, "403"), ("correct-horse-nobody", "401 Unauthorized: unknown token")] {
        let refused = check(&service, &[], &["--caller-token", token]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains(part) && !refused.err.contains("horse"), "{}", refused.err);
    }
    let unread = check(&service, &[], &["--caller-token-file", "/nowhere/token"]);
    assert_eq!(unread.code, Some(2));
    assert!(unread.err.contains("/nowhere/token: No such file"), "{}", unread.err);

    let admin = format!("http://{}", service.admin_address());
    let explain = |token: &str| run(["explain", "user=ann", "--server", &admin, "--admin-token", token]);
    assert_eq!(explain(ADMIN).code, Some(0));
    let refused = explain(CALLER);
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("403") && refused.err.contains("use a reader token"), "{}", refused.err);
}

/// The server generates an admin token beside a configured caller token.
#[test]
fn a_caller_token_opens_no_administration() {
    let mut service = Service::start(&["--caller-token", CALLER]);
    let token = service.admin.as_ref().unwrap().token.clone().expect("a generated token");
    assert_ne!(token, CALLER);
    let rules = |token: &str| {
        let authorization = format!("Bearer {token}");
        service.admin_client().send("GET", "/v1/rules", &[("authorization", &authorization)], "").status
    };
    assert_eq!((rules(CALLER), rules(&token)), (403, 200));
    let log = service.program.log();
    assert!(log.contains("-H \"Authorization: Bearer $TRYPEMA_CALLER_TOKEN\""), "{log}");

    let mut client = service.client();
    client.send("POST", "/v1/check", &[("authorization", "Bearer guessed-token")], "{}");
    let line = service.program.line("login failed: wrong token").unwrap();
    assert!(line.contains("requests: login failed"), "{line}");
    service.stop();
    let log = service.program.log();
    assert!(![CALLER, "guessed-token", &token].iter().any(|secret| log.contains(secret)), "{log}");
}

/// A caller token that is also an admin's or a reader's would open administration to callers.
#[test]
fn a_caller_token_that_is_also_another_is_refused() {
    let folder = Folder::new();
    let callers = folder.file("callers", &format!("shop correct-horse-other\nbatch {ADMIN}\n"));
    let readers = folder.file("readers", &format!("ann correct-horse-reader\nbob {CALLER}\n"));
    let (callers, readers) = (callers.to_str().unwrap(), readers.to_str().unwrap());
    let different = "caller_token: a caller token must differ from every admin token and reader token";
    let cases: [(&[&str], &str); 5] = [
        (&["--admin-token", ADMIN, "--caller-token", ADMIN], different),
        (&["--reader-token", CALLER, "--caller-token", CALLER], different),
        (&["--admin-token", ADMIN, "--caller-token-file", callers], different),
        (&["--reader-token-file", readers, "--caller-token", CALLER], different),
        (&["--caller-token-file", readers, "--caller-token", CALLER], "caller_token: set either"),
    ];
    for (flags, reason) in cases {
        let mut command = trypema();
        let ran = Ran::from(command.args(["serve", "--listen", "127.0.0.1:0"]).args(flags).output().unwrap());
        assert_eq!(ran.code, Some(2), "{flags:?}: {ran:?}");
        assert!(ran.err.contains(reason) && !ran.err.contains("horse"), "{flags:?}: {}", ran.err);
    }
}

/// The generated admin token is no caller token either.
#[test]
fn a_caller_token_that_is_the_generated_one_is_refused() {
    let (folder, port) = (Folder::new(), FreePort::any().unwrap());
    let listen = format!("127.0.0.1:{}", port.number());
    let serve = |caller_token: &str| {
        let mut command = trypema();
        command.env("XDG_RUNTIME_DIR", folder.path()).args(["serve", "--listen", "127.0.0.1:0"]);
        command.args(["--admin-listen", &listen, "--caller-token", caller_token]);
        command
    };
    let mut service = Service::of(|_| serve(CALLER));
    let file = folder.path().join(format!("trypema/admin-token-{}", port.number()));
    let generated = fs::read_to_string(&file).unwrap().trim().to_owned();
    service.stop();
    let ran = Ran::from(serve(&generated).output().unwrap());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let reason = format!(
        "caller_token: a caller token must differ from the generated admin token in {}",
        file.display()
    );
    assert!(ran.err.contains(&reason) && !ran.err.contains(&generated), "{}", ran.err);
}
