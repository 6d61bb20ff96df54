//! Methods in other cases: some applications serve `post` as `POST`, and some do not.

use crate::engine::Local;

const RULES: &str = "
rules:
  - {id: login, scope: global, endpoints: [POST /login], strategy: {fixed_window: {limit: 2, window: 1h}}}
  - {id: get, scope: global, endpoints: [GET /x], strategy: {fixed_window: {limit: 1, window: 1h}}}
";

#[test]
fn a_rule_applies_to_a_method_in_any_case() {
    let local = Local::new(RULES);
    let ask = |method: &str, path: &str| local.check(&[("endpoint", path), ("method", method)]).is_allowed();
    assert_eq!([ask("POST", "/login"), ask("post", "/login"), ask("Post", "/login")], [true, true, false]);
    assert_eq!([ask("head", "/x"), ask("GET", "/x"), ask("get", "/x")], [true, false, false]);
    assert!(ask("pos", "/login") && ask("", "/login"));
}

#[test]
fn lists_of_methods_block_any_case_and_allow_one() {
    let rule = "rules: [{id: all, scope: global, strategy: {fixed_window: {limit: 1, window: 1h}}}]";
    let local =
        Local::new(&format!("{rule}\nblock: {{method: [TRACE, delete]}}\nallow: {{method: [OPTIONS]}}"));
    let listed = |method: &str| {
        let verdict = local.check(&[("method", method)]);
        verdict.listed_by().map(|_| verdict.is_allowed())
    };
    for blocked in ["TRACE", "trace", "Trace", "DELETE", "delete", "Delete"] {
        assert_eq!(listed(blocked), Some(false), "{blocked}");
    }
    assert_eq!(listed("OPTIONS"), Some(true));
    assert_eq!((listed("options"), listed("Options"), listed("GET")), (None, None, None));
}

#[test]
fn a_method_in_any_case_is_one_counter() {
    let local = Local::new(
        "
rules:
  - {id: each, scope: user, key_pattern: '{method}', strategy: {fixed_window: {limit: 2, window: 1h}}}
overrides:
  - {rule: each, key: {method: trace}, verdict: block}
  - {rule: each, key: {method: OPTIONS}, verdict: allow}
",
    );
    let ask = |method: &str| local.check(&[("method", method)]).is_allowed();
    assert_eq!([ask("POST"), ask("post"), ask("pOST")], [true, true, false]);
    assert_eq!([ask("TRACE"), ask("trace")], [false, false]);
    assert!((0..5).all(|_| ask("OPTIONS")));
    assert_eq!(
        [ask("options"), ask("options"), ask("options")],
        [true, true, false],
        "it may be another method"
    );
    let key = local.engine.rules().key_of("each", &[("method".to_owned(), "get".to_owned())].into());
    assert_eq!(key.as_deref(), Some("each|method=GET"));
}

#[test]
fn an_explanation_reads_methods_as_rules_do() {
    let local = Local::new(RULES);
    let left = local.left(&[("endpoint", "/login"), ("method", "pOsT")]);
    assert_eq!(left, [("login".to_owned(), 2)]);
}
