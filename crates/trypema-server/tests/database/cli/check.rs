//! `trypema rules check --database`: before a COMMIT, in sessions that are in docs/database.md, and after it.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::{Ran, file, ran};
use crate::faults::{ready, wait_until_ready};
use crate::harness::Service;
use crate::scene::{Scene, done, per_user};

/// Returns the block after this mark in docs/database.md.
fn block(mark: &str) -> String {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/database.md")).unwrap();
    let (_, after) = page.split_once(&format!("<!-- {mark} -->\n")).unwrap();
    let (_, block) = after.split_once('\n').unwrap();
    block.split_once("```\n").unwrap().0.to_owned()
}

/// A database with the rule `per-user`, and a server, whose directory has the files.
struct Session {
    scene: Scene,
    service: Service,
}

impl Session {
    fn start() -> Self {
        let scene = Scene::start();
        let service = scene.service(&["--rules-poll", "1s"]);
        done(&service, "POST", "/v1/rules", &per_user("per-user", 100));
        Self { scene, service }
    }

    /// Runs psql with this input, in the directory, with `trypema` on its path. Output and errors are in one file, so
    /// that their order stays.
    fn psql(&self, options: &[&str], input: &str) -> (Option<i32>, String) {
        let input = file(&self.service, "input.sql", input);
        let output = file(&self.service, "output", "");
        let trypema = Path::new(env!("CARGO_BIN_EXE_trypema")).parent().unwrap();
        let path = format!("{}:{}", trypema.display(), std::env::var("PATH").unwrap());
        let written = File::options().append(true).open(&output).unwrap();
        let mut psql: Command = self.scene.database.psql();
        psql.args(options).env("PATH", path).current_dir(output.parent().unwrap());
        psql.stdin(File::open(input).unwrap());
        psql.stdout(written.try_clone().unwrap()).stderr(written);
        let status = psql.status().unwrap();
        (status.code(), fs::read_to_string(output).unwrap())
    }

    fn check(&self) -> Ran {
        ran(&["rules", "check", "--database", "--database-url", &self.scene.database.url()])
    }
}

/// The page's session repairs a typo before it commits.
#[test]
fn the_session_of_the_page_commits_valid_rules() {
    let session = Session::start();
    let page = block("a test runs this session");
    let (mut input, mut expected) = (String::new(), String::new());
    for line in page.lines().filter(|line| !line.starts_with("$ ")) {
        let typed = line.strip_prefix("limits=> ").or_else(|| line.strip_prefix("limits=*> "));
        let to = if typed.is_some() { &mut input } else { &mut expected };
        to.push_str(typed.unwrap_or(line));
        to.push('\n');
    }
    assert!(expected.contains("trypema: rule \"per-user\": extra.max_delay: "), "{page}");
    assert_eq!(session.psql(&[], &input), (Some(0), expected));
    wait_until_ready(&session.service, "rules_revision", &json!(2));
    assert_eq!(ready(&session.service)["rules_refused"], json!(false));
    let stored = done(&session.service, "GET", "/v1/rules/per-user", &serde_json::Value::Null);
    assert_eq!((&stored["action"], &stored["max_delay"]), (&json!("throttle"), &json!("10s")));

    // Without its repair, the session would tell the same typo, and could roll back.
    let (typo, _) = input.rsplit_once("UPDATE rate_limit_rules SET action").unwrap();
    let typo = typo.replace("'{\"max_delay\"", "'{\"share\": 7, \"max_delay\"") + "ROLLBACK;\n";
    let (code, output) = session.psql(&["--quiet"], &typo);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.starts_with("trypema: rule \"per-user\": extra."), "{output}");
    assert!(output.contains("extra.share: ") && output.contains("extra.max_delay: "), "{output}");
    assert_eq!(session.check().out, "revision 2: 1 rules are valid\n");
}

/// The page's script commits valid rules, and nothing else.
#[test]
fn the_script_of_the_page_commits_only_valid_rules() {
    let session = Session::start();
    let page = block("a test runs this script");
    let lines: Vec<&str> = page.lines().collect();
    let (command, script) = lines.split_first().unwrap();
    assert!(command.starts_with("psql --set=ON_ERROR_STOP=1 limits <<"), "{command}");
    let script = script[..script.len() - 1].join("\n") + "\n";
    let options = ["--set=ON_ERROR_STOP=1", "--quiet"];
    assert_eq!(session.psql(&options, &script), (Some(0), "revision 2: 1 rules are valid\n".to_owned()));

    let wrong = script.replace("limit_count = 200", "limit_count = 200, window_seconds = NULL");
    assert_ne!(wrong, script);
    let (code, output) = session.psql(&options, &wrong);
    assert_eq!(code, Some(3), "{output}");
    assert!(output.starts_with("trypema: rule \"per-user\": "), "{output}");
    assert!(output.contains("ERROR:  the rules are invalid"), "{output}");
    assert_eq!(
        session.scene.database.sql("SELECT limit_count, revision FROM rate_limit_rules").unwrap(),
        "200|2"
    );
}

/// Somebody committed without a check. The command names every problem, as the servers' log does.
#[test]
fn committed_rules_are_checked_too() {
    let session = Session::start();
    assert_eq!(session.check().out, "revision 1: 1 rules are valid\n");
    let typos = "UPDATE rate_limit_rules SET window_seconds = NULL, extra = '{\"if_missing\": \"maybe\"}';
        INSERT INTO rate_limit_rules (id, scope, algorithm, limit_count, window_seconds, extra)
        VALUES ('other', 'ip', 'fixed_window', 1, 1, '{\"unit\": \"tokens\"}');";
    session.scene.database.sql(typos).unwrap();
    let refused = session.check();
    assert_eq!((refused.code, refused.out.as_str()), (Some(1), ""), "{refused:?}");
    for part in [
        "rule \"per-user\": extra.if_missing: ",
        "rule \"other\": extra.unit: unit \"tokens\" is not declared",
    ] {
        assert!(refused.err.contains(part), "{part}: {}", refused.err);
    }
    wait_until_ready(&session.service, "rules_refused", &json!(true));
    assert_eq!(ready(&session.service)["rules_revision"], json!(1));
}

#[test]
fn what_cannot_be_checked_is_told() {
    let nobody = ran(&["rules", "check", "--database"]);
    assert_eq!(nobody.code, Some(2), "{nobody:?}");
    assert!(nobody.err.contains("--database-url"), "{nobody:?}");
    let bare = ran(&["rules", "check"]);
    assert!(bare.code == Some(2) && bare.err.contains("--database"), "{bare:?}");
    let address = ran(&["rules", "check", "--database", "postgres://u:s3cret@localhost/db"]);
    assert!(address.code == Some(1) && address.err.contains("--database-url"), "{address:?}");
    assert!(!address.err.contains("s3cret"), "{address:?}");
    let session = Session::start();
    let drawn = file(&session.service, "drawn", " trypema_rules\n---------------\n {\"version\"\n");
    let drawn = ran(&["rules", "check", "--database", drawn.to_str().unwrap()]);
    assert_eq!(drawn.code, Some(1), "{drawn:?}");
    assert!(drawn.err.contains("need the result of `SELECT trypema_rules()`"), "{drawn:?}");
    let empty = Command::new(env!("CARGO_BIN_EXE_trypema"))
        .args(["rules", "check", "--database", "-"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(empty.status.code(), Some(1), "{empty:?}");
    // Tables that are not there.
    let database = trypema_testkit::postgres::Server::start().unwrap();
    let early = ran(&["rules", "check", "--database", "--database-url", &database.url()]);
    assert_eq!(early.code, Some(2), "{early:?}");
    assert!(early.err.contains("`trypema rules migrate`"), "{early:?}");
}
