//! What a constraint of the database refuses, the compiler refuses as well, and what servers write is read again exactly, also if an
//! operator writes it with SQL.

#[path = "constraints/by_hand.rs"]
mod by_hand;
#[path = "constraints/drawn.rs"]
pub mod drawn;
#[path = "constraints/spelled.rs"]
mod spelled;
#[path = "constraints/statements.rs"]
mod statements;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trypema::rules::{Rule, RuleSet, Rules};
use trypema_testkit::postgres::Server;
use trypema_testkit::random::Random;

use self::spelled::Spelled;
use crate::harness::Service;
use crate::scene::{Scene, done, is_allowed, per_user};

/// The number of random rules that are compared. Far more were compared once.
const DRAWN: usize = 1_500;

/// A function that runs a statement, checks the deferred constraints, and undoes the statement. It returns
/// `fine` or the error.
const ATTEMPT: &str = "
    CREATE FUNCTION pg_temp.attempt(statement text) RETURNS text LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE statement;
        SET CONSTRAINTS ALL IMMEDIATE;
        RAISE SQLSTATE 'UNDO1';
    EXCEPTION
        WHEN SQLSTATE 'UNDO1' THEN RETURN 'fine';
        WHEN others THEN RETURN translate(SQLERRM, E'\\r\\n', '  ');
    END
    $$;\n";

/// Runs each statement by itself and returns `fine` or the error for each.
fn attempts(database: &Server, statements: impl Iterator<Item = String>) -> Vec<String> {
    let attempt = |statement: String| format!("SELECT pg_temp.attempt({});\n", by_hand::text(&statement));
    let script: String = statements.map(attempt).collect();
    let answers = database.sql(&format!("{ATTEMPT}{script}")).unwrap();
    answers.split('\n').map(str::to_owned).collect()
}

fn live() -> Rule {
    serde_json::from_value(per_user(drawn::LIVE, 5)).unwrap()
}

fn is_compiled(rules: &Rules) -> Result<(), String> {
    RuleSet::compile(rules).map(drop).map_err(|invalid| invalid.to_string())
}

#[test]
fn the_database_refuses_no_valid_rule() {
    let scene = Scene::start();
    let there =
        format!("BEGIN;\n{};\n{};\nCOMMIT", by_hand::declare(&drawn::UNITS), by_hand::insert(&live()));
    scene.database.sql(&there).unwrap();
    let mut random = Random::seeded(7);
    let mut rules: Vec<Rule> = (0..DRAWN).map(|_| drawn::rule(&mut random)).collect();
    rules.push(drawn::hardly_inexact());
    let answers = attempts(&scene.database, rules.iter().map(by_hand::insert));
    let units: Vec<String> = drawn::UNITS.map(str::to_owned).into();
    let with_live =
        |rule: &Rule| Rules { units: units.clone(), rules: vec![live(), rule.clone()], ..Rules::default() };
    let sets: Vec<Rules> = rules.iter().map(with_live).collect();
    compare(&sets, &rules.iter().map(by_hand::insert).collect::<Vec<_>>(), &answers, |compiled, answer| {
        compiled.is_err() || answer == "fine"
    });
    let share = |count: usize| count as f64 / DRAWN as f64;
    let refused = share(answers.iter().filter(|answer| *answer != "fine").count());
    let valid = rules.into_iter().zip(&sets).filter(|(_, rules)| is_compiled(rules).is_ok());
    let valid: Vec<Rule> = valid.map(|(rule, _)| rule).collect();
    assert!((0.3..0.7).contains(&share(valid.len())), "both answers have to be common: {}", valid.len());
    assert!(refused > 0.2, "the constraints have to refuse some: {refused}");
    understood(&scene, valid);
}

/// Asserts that the answers of the compiler and the database to each rule set are as expected.
fn compare(
    sets: &[Rules],
    statements: &[String],
    answers: &[String],
    is_expected: impl Fn(&Result<(), String>, &str) -> bool,
) {
    assert_eq!((sets.len(), statements.len()), (answers.len(), answers.len()));
    let mut disagreements = Vec::new();
    for ((rules, statement), answer) in sets.iter().zip(statements).zip(answers) {
        let compiled = is_compiled(rules);
        if !is_expected(&compiled, answer) {
            disagreements.push(format!("{statement}\n  compiler: {compiled:?}\n  database: {answer}"));
        }
    }
    let count = disagreements.len();
    disagreements.truncate(20);
    assert_eq!(count, 0, "{}", disagreements.join("\n"));
}

#[test]
fn the_database_and_the_compiler_agree_on_texts() {
    let scene = Scene::start();
    let there: String = spelled::there().iter().map(|rule| by_hand::insert(rule) + ";\n").collect();
    scene.database.sql(&there).unwrap();
    let mut random = Random::seeded(13);
    let mut drawn: Vec<Spelled> = (0..DRAWN).map(|_| spelled::draw(&mut random)).collect();
    drawn.sort_by(|one, other| one.statement.cmp(&other.statement));
    drawn.dedup_by(|one, other| one.statement == other.statement);
    let (sets, statements): (Vec<Rules>, Vec<String>) =
        drawn.into_iter().map(|Spelled { rules, statement }| (rules, statement)).unzip();
    let answers = attempts(&scene.database, statements.iter().cloned());
    compare(&sets, &statements, &answers, |compiled, answer| compiled.is_ok() == (answer == "fine"));
    let fine = answers.iter().filter(|answer| *answer == "fine").count();
    assert!(fine * 10 > answers.len(), "both answers have to be common: {fine}");
}

/// Asserts that servers read rules written with SQL exactly, to the last digit.
fn understood(scene: &Scene, mut rules: Vec<Rule>) {
    for (number, rule) in rules.iter_mut().enumerate() {
        rule.id = format!("rule-{number:04}");
    }
    let script: String = rules.iter().map(|rule| by_hand::insert(rule) + ";\n").collect();
    scene.database.sql(&format!("BEGIN;\n{script}COMMIT")).unwrap();
    let service = scene.service(&[]);
    let exported: Rules = serde_json::from_value(done(&service, "GET", "/v1/ruleset", &Value::Null)).unwrap();
    rules.push(live());
    assert_eq!(exported.units, drawn::UNITS);
    let by_id =
        |rules: Vec<Rule>| rules.into_iter().map(|rule| (rule.id.clone(), rule)).collect::<BTreeMap<_, _>>();
    assert_eq!(by_id(exported.rules), by_id(rules));
    let in_force = done(&service, "GET", "/v1/rules", &Value::Null);
    assert_eq!(in_force["revision"], json!(2));
}

/// Returns rules with every field and strategy, overrides of both kinds, and lists.
fn everything() -> Value {
    let strategies = json!([
        {"absolute": {"limit": 9_007_199_254_740_990_u64, "window": "366d", "group": "1h"}},
        {"suppressed": {"limit": 3, "window": "1us", "group": "1ms", "hard_limit_factor": 1.000_000_000_000_000_2}},
        {"token_bucket": {"limit": 10, "window": "1s", "burst": 3}},
        {"token_bucket": {"burst": 10, "refill_rate": 0.1}},
        {"token_bucket": {"limit": 1000, "window": "1m", "burst": 1200, "refill_rate": 16.5}},
        {"token_bucket": {"limits": [{"limit": 10, "window": "1s"}, {"limit": 1, "window": "365d23h59m59s999ms999us", "burst": 1}]}},
        {"sliding_window": {"limit": 4_294_967_295_u64, "window": "1m1us"}},
        {"fixed_window": {"limit": 9_007_199_254_740_991_u64, "window": "1ms"}},
        {"fixed_window": {"limit": 1, "per": "day", "zone": "Europe/Berlin", "starts": "06:30"}},
        {"fixed_window": {"limit": 1, "per": "week", "starts": "sunday"}},
        {"fixed_window": {"limit": 1, "per": "month", "zone": "America/Argentina/ComodRivadavia", "starts": 28}},
        {"fixed_window": {"limit": 1, "per": "month"}},
        {"abuse": {"temp": {"window": "1m", "threshold": 10_000, "block": "10m"},
            "long": {"window": "1d", "threshold": 1, "block": "366d"}, "while_blocked": "lengthen"}},
        {"concurrency": {"limit": 9_007_199_254_740_991_u64, "hold": "59m59s999ms999us"}},
    ]);
    let (mut rules, mut overrides) = (Vec::new(), Vec::new());
    for (number, strategy) in strategies.as_array().unwrap().iter().enumerate() {
        let id = format!("rule.{number}");
        let is_postpaid = strategy["abuse"].is_null() && strategy["concurrency"].is_null();
        rules.push(json!({
            "id": id, "unit": "usd_micros", "postpaid": is_postpaid, "name": "yes: 'no' # \\ \u{feff}☂", "scope": "tenant", "key_pattern": "~:{api_key}, {user}\t",
            "strategy": strategy, "plan_tiers": ["free", "null", "1e3", " ", "{a,\"b\"}"],
            "endpoints": ["POST /login", "/a,b/'c'/**"],
            "when": {"model": ["gpt-5", "null", "*☂\\", "a'b\""], "region": {"not": ["eu", " "]}, "A.b_c-9": "absent"}, "action": "throttle", "max_delay": "59m59s999ms999us",
            "if_missing": "deny", "on_store_failure": "deny", "priority": -2_147_483_648_i64, "enabled": number != 0,
        }));
        overrides.push(json!({"rule": id, "key": {"api_key": "k", "user": "true"}, "strategy": strategy}));
        overrides
            .push(json!({"rule": id, "key": {"api_key": "", "user": "a'b\"\\\n☂|=%"}, "verdict": "block"}));
    }
    rules.push(json!({"id": "candidate", "scope": "ip", "strategy": strategies[0], "action": "log_only", "priority": 2_147_483_647,
        "enabled": true, "candidate_for": "rule.0", "share": 0.1}));
    let lists =
        json!({"ip": ["10.0.0.0/8", "::1"], "user": ["", "no", "x\ny", "☂"], "endpoint": ["/health"]});
    let units = ["usd_micros", "tokens", "A.b_c-9"];
    json!({"units": units, "rules": rules, "overrides": overrides, "allow": lists, "block": {"user": ["~"]}})
}

#[test]
fn everything_that_is_applied_is_exported_again() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    let wanted: Rules = serde_json::from_value(everything()).unwrap();
    done(&service, "PUT", "/v1/ruleset", &serde_json::to_value(&wanted).unwrap());
    let exported: Rules = serde_json::from_value(done(&service, "GET", "/v1/ruleset", &Value::Null)).unwrap();
    assert_eq!(sorted(exported), sorted(wanted.clone()));
    let yaml = service.client().send("GET", "/v1/ruleset", &[("accept", "application/yaml")], "");
    assert_eq!((yaml.status, yaml.header("content-type")), (200, Some("application/yaml")));
    let read = Rules::from_yaml(&yaml.body).unwrap_or_else(|invalid| panic!("{invalid}\n{}", yaml.body));
    assert_eq!(sorted(read), sorted(wanted.clone()), "{}", yaml.body);
    let again = done(&service, "PUT", "/v1/ruleset", &serde_json::to_value(&wanted).unwrap());
    assert_eq!(again, json!({"revision": 1, "changes": []}));
}

fn sorted(mut rules: Rules) -> Rules {
    rules.units.sort();
    rules.rules.sort_by(|one, other| one.id.cmp(&other.id));
    rules.overrides.sort_by(|one, other| (&one.rule, &one.key).cmp(&(&other.rule, &other.key)));
    rules.allow.values_mut().chain(rules.block.values_mut()).for_each(|values| values.sort());
    rules
}

/// Statements that were written for the documented table work on ours.
#[test]
fn statements_for_the_documented_table_work() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    let insert = "
        INSERT INTO rate_limit_rules (name, key_pattern, scope, algorithm, limit_count, window_seconds, burst_limit, refill_rate,
            plan_tiers, endpoints, action, priority, enabled)
        VALUES ('search', 'user:{user}', 'user', 'fixed_window', 2, 3600, NULL, NULL, '{}', '{}', 'reject', 10, TRUE),
               ('burst', 'tenant:{api_key}', 'tenant', 'token_bucket', 1000, 60, 1200, NULL, '{free, pro}', '{/api/search}', 'throttle', 20, TRUE),
               ('rate', 'ip:{ip}', 'ip', 'token_bucket', 1000, 60, 1200, 16.5, DEFAULT, DEFAULT, DEFAULT, DEFAULT, DEFAULT)";
    scene.database.sql(insert).unwrap();
    let exported = done(&service, "GET", "/v1/ruleset", &Value::Null);
    assert_eq!(exported["rules"].as_array().unwrap().len(), 3);
    in_force(&service, 1);
    assert_eq!([(); 3].map(|()| is_allowed(&service, "ann")), [true, true, false]);
}

/// Waits until this revision is in force. A change made with SQL has no response that would wait for it.
fn in_force(service: &Service, revision: u64) {
    let is_there = || service.get("/v1/rules").json()["revision"] == json!(revision);
    trypema_testkit::redis::wait_until("the revision to be in force", is_there).unwrap();
}

/// The database also refuses combinations of rows that are invalid although each row is valid.
#[test]
fn what_does_not_fit_together_is_refused_by_hand() {
    let scene = Scene::start();
    let rules = json!({"units": ["tokens"], "rules": [
        per_user("per-user", 5),
        {"id": "all", "scope": "global", "strategy": {"fixed_window": {"limit": 1, "window": "1s"}}},
        {"id": "candidate", "scope": "user", "candidate_for": "per-user", "strategy": {"fixed_window": {"limit": 1, "window": "1s"}}},
    ]});
    let service = scene.service(&[]);
    done(&service, "PUT", "/v1/ruleset", &rules);
    let before = done(&service, "GET", "/v1/ruleset", &Value::Null);
    let statements = statements::all();
    let answers = attempts(&scene.database, statements.iter().map(|(statement, _)| statement.clone()));
    let wrong = statements.iter().zip(&answers).filter(|((_, reason), answer)| !answer.contains(reason));
    let wrong: Vec<String> = wrong
        .map(|((statement, reason), answer)| format!("{statement}\n  need: {reason}\n  have: {answer}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(done(&service, "GET", "/v1/ruleset", &Value::Null), before);
    assert_eq!(scene.database.sql("SELECT revision FROM rate_limit_state").unwrap(), "1");
}
