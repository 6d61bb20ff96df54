//! Paths that servers read in different ways, and methods in other cases.

mod counting;
mod methods;
mod oracles;

use super::Local;

/// Paths as attackers write them, and all paths that some server reads them as.
const SPELLED: [(&str, &[&str]); 9] = [
    ("/api//../login", &["/login", "/api/../login", "/api/login"]),
    ("/a%2Fb/../api/login", &["/a/api/login", "/a%2Fb/../api/login", "/a/b/../api/login", "/api/login"]),
    (r"/x\..\api/login", &["/api/login", r"/x\..\api/login", "/x/../api/login"]),
    ("/admin//..", &["/", "/admin/..", "/admin"]),
    ("/files%2F..%2Fx", &["/x", "/files%2F..%2Fx", "/files/../x"]),
    ("/api%5clogin", &[r"/api\login", "/api/login"]),
    // `new URL("//x/login", base)` takes `x` for a host.
    ("//x/login", &["/x/login", "/login"]),
    (r"/\x/login", &[r"/\x/login", "/x/login", "/login"]),
    ("/x/%2e%2e/../y", &["/y", "/x/../../y", "/x/y"]),
];

/// The paths of `SPELLED` that an operator can name: those without dot segments and encoded slashes.
fn named(readings: &[&'static str]) -> impl Iterator<Item = &'static str> {
    readings.iter().copied().filter(|path| !path.contains("..") && !path.contains("%2F"))
}

#[test]
fn a_rule_applies_to_every_reading_of_a_path() {
    for (spelled, readings) in SPELLED {
        for served in named(readings) {
            let local = Local::new(&format!(
                "rules: [{{id: one, scope: global, endpoints: ['{served}'], strategy: {{fixed_window: {{limit: 1, window: 1h}}}}}}]"
            ));
            assert!(local.check(&[("endpoint", served)]).is_allowed());
            assert!(!local.check(&[("endpoint", spelled)]).is_allowed(), "{spelled} is {served}");
        }
    }
}

#[test]
fn a_block_holds_for_every_reading_of_a_path() {
    for (spelled, readings) in SPELLED {
        for served in named(readings) {
            let rule =
                "rules: [{id: each, scope: endpoint, strategy: {fixed_window: {limit: 9, window: 1h}}}]";
            let list = Local::new(&format!("{rule}\nblock: {{endpoint: ['{served}']}}"));
            assert_eq!(
                list.check(&[("endpoint", spelled)]).listed_by(),
                Some("endpoint"),
                "{spelled} is {served}"
            );
            let block = "overrides: [{rule: each, verdict: block, key: {endpoint: ";
            let overriding = Local::new(&format!("{rule}\n{block}'{served}'}}}}]"));
            assert!(!overriding.check(&[("endpoint", spelled)]).is_allowed(), "{spelled} is {served}");
        }
    }
}

#[test]
fn an_allowance_needs_every_reading_of_a_path() {
    let rule = "rules: [{id: each, scope: endpoint, strategy: {fixed_window: {limit: 1, window: 1h}}}]";
    for (spelled, readings) in SPELLED {
        let all: Vec<_> = named(readings).collect();
        let is_nameable = all.len() == readings.len();
        let local = Local::new(&format!("{rule}\nallow: {{endpoint: {all:?}}}"));
        let verdict = local.check(&[("endpoint", spelled)]);
        assert_eq!(verdict.listed_by().is_some(), is_nameable, "{spelled}");
        let Some((_, others)) = all.split_first() else { continue };
        let local = Local::new(&format!("{rule}\nallow: {{endpoint: {others:?}}}"));
        assert_eq!(local.check(&[("endpoint", spelled)]).listed_by(), None, "{spelled}");
        let allowing: String = others
            .iter()
            .map(|path| format!("  - {{rule: each, key: {{endpoint: '{path}'}}, verdict: allow}}\n"))
            .collect();
        let local = Local::new(&format!(
            "{rule}\noverrides:\n{allowing}{}",
            if others.is_empty() { "  []" } else { "" }
        ));
        assert!(local.check(&[("endpoint", spelled)]).is_allowed());
        assert!(
            !local.check(&[("endpoint", spelled)]).is_allowed(),
            "{spelled}: its other readings are counted"
        );
    }
}
