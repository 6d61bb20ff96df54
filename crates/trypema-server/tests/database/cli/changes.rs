//! Small changes of stored rules: single fields, and values of lists.

use serde_json::{Value, json};

use super::{RULES, at, file, told};
use crate::harness::Service;
use crate::scene::{Scene, done, is_allowed};

fn applied(scene: &Scene) -> Service {
    let service = scene.service(&[]);
    let path = file(&service, "new.yaml", RULES);
    told(&service, &["rules", "apply", path.to_str().unwrap(), "--yes"]);
    service
}

fn revision(service: &Service) -> String {
    service.get("/v1/ruleset").header("etag").unwrap().to_owned()
}

/// A script cannot be asked, and has to say that it wants the change. It is shown what it would change.
#[test]
fn without_a_terminal_a_change_needs_yes() {
    let scene = Scene::start();
    let service = applied(&scene);
    let path = file(&service, "changed.yaml", &RULES.replace("limit: 2", "limit: 3"));
    let commands = [
        &["rules", "apply", path.to_str().unwrap()][..],
        &["rules", "revert", "0"],
        &["rules", "promote", "next"],
        &["rules", "set", "per-user", "limit=3"],
        &["lists", "block", "user=mallory"],
        &["lists", "remove", "10.0.0.0/8"],
    ];
    for command in commands {
        let refused = at(&service, command);
        assert_eq!(refused.code, Some(1), "{command:?}: {refused:?}");
        assert!(
            refused.err.contains("nothing was changed: ") && refused.err.contains("--yes"),
            "{refused:?}"
        );
        assert!(refused.out.starts_with(['+', '-', '~']), "{refused:?}");
        assert_eq!(revision(&service), "\"1\"", "{command:?}");
    }
}

#[test]
fn fields_of_a_rule_are_set() {
    let scene = Scene::start();
    let service = applied(&scene);
    assert_eq!([(); 3].map(|()| is_allowed(&service, "ann")), [true, true, false]);
    let shown = told(&service, &["rules", "set", "per-user", "limit=3", "--dry-run"]);
    let change = "~ rule per-user\n    strategy.fixed_window.limit: 2 -> 3\n";
    assert_eq!(shown, format!("{change}1 change; nothing was changed\n"));
    assert_eq!(
        told(&service, &["rules", "set", "per-user", "limit=3", "--yes"]),
        format!("{change}1 change, revision 2\n")
    );
    assert!(is_allowed(&service, "ann"));
    assert_eq!(told(&service, &["rules", "set", "per-user", "limit=3"]), "no changes\n");
    let several = ["rules", "set", "per-user", "name=Per user", "priority=7", "window=100d", "--yes"];
    let shown = told(&service, &several);
    for part in
        ["    name: \"Per user\"\n", "priority", "    strategy.fixed_window.window: \"300d\" -> \"100d\"\n"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    for (arguments, part) in [
        (&["nobody", "limit=1"][..], "there is no rule \"nobody\""),
        (&["per-user", "limit=0"], "422"),
        (&["per-user", "limt=1"], "limt"),
        (&["per-user", "id=other"], "id cannot be changed"),
    ] {
        let refused = at(&service, &[&["rules", "set", "--yes"], arguments].concat());
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.err.contains(part), "{part}: {refused:?}");
    }
    assert_eq!(revision(&service), "\"3\"");
}

#[test]
fn units_and_conditions_are_applied_set_and_exported() {
    let scene = Scene::start();
    let service = applied(&scene);
    let path = file(&service, "units.yaml", &format!("units: [tokens]\n{RULES}"));
    let shown = told(&service, &["rules", "apply", path.to_str().unwrap(), "--yes"]);
    assert_eq!(shown, "+ unit tokens\n    name: \"tokens\"\n1 change, revision 2\n");
    let set = ["rules", "set", "per-user", "unit=tokens", "postpaid=true", "when.model=[\"gpt-*\"]", "--yes"];
    let shown = told(&service, &set);
    assert_eq!(
        shown,
        "~ rule per-user\n    postpaid: true\n    unit: \"tokens\"\n    when.model: [\"gpt-*\"]\n1 change, revision 3\n"
    );
    let exported = file(&service, "exported.yaml", &told(&service, &["rules", "export"]));
    let again = told(&service, &["rules", "apply", exported.to_str().unwrap()]);
    assert_eq!(again, "no changes: revision 3 already matches\n");
    let history = told(&service, &["rules", "history", "--about", "tokens"]);
    assert!(history.contains("+ unit tokens\n"), "{history}");
    let reverted = told(&service, &["rules", "revert", "1", "--yes"]);
    assert_eq!(
        reverted,
        "- unit tokens\n~ rule per-user\n    postpaid: true -> not given\n    unit: \"tokens\" -> not given\n    \
         when.model: [\"gpt-*\"] -> not given\n2 changes, revision 4\n"
    );
    assert_eq!(told(&service, &["rules", "set", "per-user", "unit=requests"]), "no changes\n");
}

#[test]
fn values_are_listed_and_removed() {
    let scene = Scene::start();
    let service = applied(&scene);
    let shown = told(&service, &["lists", "block", "user=mallory", "--yes"]);
    assert!(
        shown.starts_with("+ list block user mallory\n") && shown.ends_with("1 change, revision 2\n"),
        "{shown}"
    );
    assert!(!is_allowed(&service, "mallory"));
    assert_eq!(told(&service, &["lists", "block", "user=mallory"]), "no changes\n");
    told(&service, &["lists", "allow", "::ffff:192.0.2.1", "--yes"]);
    assert_eq!(
        told(&service, &["lists", "show"]),
        "block user=mallory\nallow ip=10.0.0.0/8\nallow ip=192.0.2.1\n"
    );
    told(&service, &["lists", "allow", "user=mallory", "--yes"]);
    let removed = told(&service, &["lists", "remove", "user=mallory", "--yes"]);
    assert_eq!(
        removed,
        "- list block user mallory\n- list allow user mallory\n1 change, revision 5\n1 change, revision 6\n"
    );
    assert!(is_allowed(&service, "mallory"));
    let none = at(&service, &["lists", "remove", "user=mallory"]);
    assert_eq!((none.code, none.out.as_str()), (Some(1), ""), "{none:?}");
    assert!(none.err.contains("user=mallory is on no list"), "{none:?}");
    let lists = done(&service, "GET", "/v1/lists", &Value::Null);
    assert_eq!(lists["allow"], json!({"ip": ["10.0.0.0/8", "192.0.2.1"]}));
    let wrong = at(&service, &["lists", "block", "mallory"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.err.contains("user=mallory"), "{wrong:?}");
}

/// Rules in a file are changed in the file.
#[test]
fn rules_in_a_file_are_not_changed() {
    let service = Service::start(&[]);
    for command in
        [&["rules", "set", "per-user", "limit=3", "--yes"][..], &["lists", "block", "user=a", "--yes"]]
    {
        let refused = at(&service, command);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.err.contains("database_url"), "{refused:?}");
    }
}

/// A rule that counts another unit than requests has keys like any other.
#[test]
fn keys_of_a_rule_with_a_unit_are_blocked_and_allowed() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    let rules = RULES.replace("scope: user", "scope: user\n    unit: usd_micros");
    let path = file(&service, "units.yaml", &format!("units: [usd_micros]\n{rules}"));
    told(&service, &["rules", "apply", path.to_str().unwrap(), "--yes"]);
    let key = "per-user|user=ann";
    let blocked = told(&service, &["keys", "block", key]);
    assert!(blocked.contains("verdict: \"block\"") && blocked.ends_with("revision 2\n"), "{blocked}");
    assert!(told(&service, &["keys", "show", key]).contains("\"blocked\": true"));
    let allowed = told(&service, &["keys", "allow", key]);
    assert!(allowed.contains("verdict: \"block\" -> \"allow\""), "{allowed}");
    let unblocked = told(&service, &["keys", "unblock", key]);
    assert!(unblocked.starts_with("- override per-user"), "{unblocked}");
}
