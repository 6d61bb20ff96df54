//! Parts of YAML that rules do not need: each is either supported or rejected, and each is bounded.

use trypema::rules::{Document, Rules};

use super::corpus;

/// A valid rule, to which more fields can be added.
const RULE: &str = "id: a\n    scope: user\n    strategy: { fixed_window: { limit: 1, window: 1s } }\n";

/// The line and message of the only problem of a text.
fn problem(text: &str) -> String {
    let invalid = corpus::refusal(text);
    let [problem] = invalid.problems() else { panic!("{invalid}") };
    format!("{}: {problem}", problem.line().unwrap())
}

#[test]
fn nothing_is_not_an_empty_set() {
    for nothing in [
        "",
        " ",
        "\n\n",
        "\u{feff}",
        "# A comment\n",
        "~",
        "null\n",
        "---\n",
        "---\n...\n",
        "%YAML 1.2\n---\n",
    ] {
        assert_eq!(problem(nothing), "1: empty: write `rules: []` for no rules", "{nothing:?}");
    }
    for empty in ["rules: []", "{rules: []}", "---\nrules: []\n...\n", "\"rules\": []\n\n# The end\n"] {
        assert_eq!(Rules::from_yaml(empty).unwrap(), Rules::default(), "{empty:?}");
    }
}

#[test]
fn one_document() {
    for (text, line) in [
        ("rules: []\n---\n", 2),
        ("---\n---\nrules: []\n", 2),
        ("rules: []\n...\nrules: []\n", 3),
        ("rules: []\n...\nrules: [\n", 3),
    ] {
        assert_eq!(
            problem(text),
            format!("{line}: a second YAML document begins here: need one"),
            "{text:?}"
        );
    }
}

#[test]
fn aliases_stand_for_whole_values() {
    let text = format!(
        "rules:\n  - &rule\n    {RULE}allow: {{ ip: &ips [a, b] }}\nblock: {{ ip: *ips, user: [&u ann, *u] }}\n"
    );
    let rules = Rules::from_yaml(&text).unwrap();
    assert_eq!(rules.allow["ip"], rules.block["ip"]);
    assert_eq!(rules.block["user"], ["ann", "ann"]);
}

#[test]
fn aliases_are_counted_each_time() {
    let plans: Vec<String> = (0..2_000).map(|plan| format!("p{plan}")).collect();
    let text = format!(
        "rules:\n  - &rule\n    {RULE}    plan_tiers: [{}]\n{}",
        plans.join(", "),
        "  - *rule\n".repeat(1_100)
    );
    let problem = problem(&text);
    assert!(problem.contains("aliases or problems make more than 2000000 values"), "{problem}");
}

#[test]
fn a_billion_laughs_are_not_laughed() {
    let mut text =
        "rules: []\nallow:\n  a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
    for level in 1..=30 {
        let laughs = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("  a{level}: &a{level} [{laughs}]\n"));
    }
    let invalid = corpus::refusal(&text);
    assert_eq!(invalid.problems()[0].to_string(), "allow.a1[0]: need text, not a list");
    assert_eq!((invalid.problems().len(), invalid.more()), (100, 200));
    assert!(invalid.to_string().ends_with("\nand 200 more problems"), "{invalid}");
    assert_eq!(
        problem(&text.replace("rules: []\nallow:", "rules: []\nlaughs:")),
        "2: laughs: unknown field: need one of units, rules, overrides, allow, block"
    );
}

#[test]
fn depth_is_bounded() {
    let deep = "4: values more than 32 levels deep";
    for text in [
        format!("rules:\n#\n#\n  {}", "[".repeat(100_000)),
        format!("rules:\n#\n#\n  {}", "{a: ".repeat(100_000)),
        format!("rules:\n#\n#\n  {}", "- ".repeat(100_000)),
    ] {
        assert_eq!(problem(&text), deep);
    }
    let nested: String = (1..100).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert_eq!(problem(&format!("rules:\n{nested}")), "33: values more than 32 levels deep");
    assert_eq!(
        problem(&format!("rules: {}{}", "[".repeat(31), "]".repeat(31))),
        "1: rules[0]: need a mapping, not a list"
    );
}

#[test]
fn sizes_are_bounded() {
    let long = "x".repeat(16 * 1024);
    assert!(Rules::from_yaml(&format!("rules: []\nallow: {{ ip: [{long}] }}")).is_ok());
    let text = format!("rules: []\nallow: {{ ip: [ok, {long}x] }}");
    assert_eq!(problem(&text), "2: allow.ip[1]: text of 16385 bytes: need at most 16384");

    let fields = |count: usize| (0..count).map(|field| format!("  a{field}: []\n")).collect::<String>();
    assert_eq!(Rules::from_yaml(&format!("rules: []\nallow:\n{}", fields(100))).unwrap().allow.len(), 100);
    assert_eq!(
        problem(&format!("rules: []\nallow:\n{}", fields(101))),
        "103: allow.a100: more than 100 fields in one mapping"
    );

    let values = format!("rules: []\nallow: {{ ip: [{}] }}", "x,".repeat(2_000_001));
    assert!(problem(&values).contains("more than 2000000 values"));

    let large = corpus::refusal(&"#".repeat(16 * 1024 * 1024 + 1));
    assert_eq!(large.to_string(), "rules.yaml: too large: need at most 16777216 bytes");
}

#[test]
fn text_is_taken_as_it_is_written() {
    let rules =
        Rules::from_yaml("rules: []\nblock: { country: [NO, no, 0123, 1.50, 0x1F, true, '~', \" a \"] }\n")
            .unwrap();
    assert_eq!(rules.block["country"], ["NO", "no", "0123", "1.50", "0x1F", "true", "~", " a "]);
}

#[test]
fn a_missing_field_is_told_with_the_line_of_what_it_is_missing_from() {
    let text = "rules:\n\n  - id: a\n    scope: user\n    strategy:\n      token_bucket:\n        # Nothing yet.\n        burst: 5\n";
    let shown = corpus::refusal(text).to_string();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(
        lines,
        [
            "rules.yaml:6: rules[0].strategy.token_bucket.limit (rule \"a\"): a token bucket needs `limit`",
            "rules.yaml:6: rules[0].strategy.token_bucket.window (rule \"a\"): a token bucket needs `window`",
        ]
    );
}

#[test]
fn a_value_below_its_name_has_the_line_of_the_name() {
    let text = format!(
        "rules:\n  - {RULE}    endpoints:\n      - /a\n      -\n        b\n    name:\n\n      |\n      a\n      b\n"
    );
    let invalid = corpus::refusal(&text);
    let lines: Vec<_> =
        invalid.problems().iter().map(|problem| (problem.field().to_string(), problem.line())).collect();
    assert_eq!(lines, [("rules[0].endpoints[1]".to_owned(), Some(8)), ("rules[0].name".to_owned(), Some(9))]);
}

/// Reads a document of another format, here JSON, which has the bounds of YAML.
fn json_error(text: &str) -> String {
    serde_json::from_str::<Document<'_>>(text).unwrap_err().to_string()
}

#[test]
fn json_has_the_bounds_of_yaml() {
    let name = "n".repeat(300);
    let fields: Vec<String> = (0..101).map(|field| format!("\"f{field}\": 0")).collect();
    for (text, expected) in [
        (format!("{{\"{name}\": 0}}"), "a field's name of 300 bytes: need at most 255"),
        (format!("{{{}}}", fields.join(",")), "more than 100 fields in one mapping"),
        (format!("\"{}\"", "t".repeat(20_000)), "text of 20000 bytes: need at most 16384"),
        (format!("{}{}", "[".repeat(40), "]".repeat(40)), "values more than 32 levels deep"),
    ] {
        let error = json_error(&text);
        assert!(error.contains(expected), "{error}");
    }
}

/// Each alias contains the previous one. Reading them all would need a stack of 100,000 values.
#[test]
fn a_chain_of_aliases_is_bounded_in_depth() {
    let mut text = "- &a0 [1]\n".to_owned();
    (1..100_000).for_each(|level| text.push_str(&format!("- &a{level} [*a{}]\n", level - 1)));
    let invalid = Document::from_yaml(&text).unwrap().read::<serde_json::Value>().invalid.unwrap();
    assert!(invalid.to_string().contains("values more than 32 levels deep"), "{invalid}");
}

/// Each alias has more problems than the reader makes attempts. The attempts count as values, too.
#[test]
fn problems_of_aliases_are_counted_each_time() {
    let limits = ["{}"; 60].join(", ");
    let text = format!(
        "rules:\n  - &rule {{ id: a, scope: user, strategy: {{ token_bucket: {{ limits: [{limits}] }} }} }}\n{}",
        "  - *rule\n".repeat(100_000)
    );
    let invalid = corpus::refusal(&text);
    assert_eq!(invalid.problems().len(), 100);
    assert!(invalid.more() > 0);
}

#[test]
fn all_problems_of_a_long_list_are_counted() {
    let text = format!("{{\"rules\": [{}]}}", vec!["0"; 200_000].join(","));
    let document: Document<'_> = serde_json::from_str(&text).unwrap();
    let invalid = document.rule_set().unwrap_err();
    assert_eq!((invalid.problems().len(), invalid.more()), (100, 199_900));
}

/// A merge key may be the reason why a field is missing, but not why another has a wrong value.
#[test]
fn a_merge_key_hides_only_missing_fields() {
    let text = format!("<<: {{}}\nrules:\n  - {RULE}    priority: high\n");
    let invalid = corpus::refusal(&text);
    let [merge, priority] = invalid.problems() else { panic!("{invalid}") };
    assert!(merge.reason().contains("merge keys"), "{invalid}");
    assert_eq!(priority.field().to_string(), "rules[0].priority");
}
