//! Short texts of significant characters in every order, and rule sets that contain them.

use serde_json::{Value, json};
use trypema::rules::Rules;
use trypema_testkit::random::Random;

use super::by_hand::text;
use crate::scene::per_user;

/// A rule set, and the statement that adds its special part to the rules `live` and `per-ip`.
pub struct Spelled {
    pub rules: Rules,
    pub statement: String,
}

/// Fragments of the texts that are parsed character by character.
const ENDPOINT: [&str; 18] =
    ["/", "/", "/", "*", "**", "{", "}", "{id}", ":", ".", "..", "?", "%", " ", "GET ", "a", "é", "\u{85}"];
const PATH: [&str; 20] = [
    "/", "/", "/", "a", "a", "b", ".", "..", "%", "%2", "%2F", "%2e", "%25", "%61", "%C3%A9", "%c3", "%00",
    "é", "?", "#",
];
const PATTERN: [&str; 9] = ["{", "}", "{user}", "{ip}", "a", "é", "\n", ".", " "];
const ID: [&str; 10] = ["a", "Z", "9", "_", "-", ".", "é", " ", "\n", "/"];
/// Valid networks, and fragments that are inserted into them.
const NETWORKS: [&str; 10] = [
    "1.2.3.4",
    "10.0.0.0/8",
    "255.255.255.255/32",
    "0.0.0.0/0",
    "::",
    "::1/128",
    "2001:db8::/32",
    "1:2:3:4:5:6:7:8/64",
    "::ffff:1.2.3.4",
    "64:ff9b::1.2.3.4/96",
];
const PUT_IN: [&str; 14] = ["", "0", "1", "9", "255", ".", ":", "::", "/", "/8", "+", "%eth0", " ", "f"];
/// Different spellings of a few addresses.
const SAME: [&str; 16] = [
    "1.2.3.4",
    "::ffff:1.2.3.4",
    "::ffff:102:304",
    "::FFFF:1.2.3.4",
    "2001:db8::1",
    "2001:db8::2",
    "2001:0db8:0:0::1",
    "2001:DB8::",
    "2001:db8::/64",
    "2001:db8:0:1::1",
    "2001:db8:0:0:1::",
    "::1",
    "::",
    "::/64",
    "1.2.3.4/32",
    "somebody",
];

/// Returns a rule set with one unusual text in it.
pub fn draw(random: &mut Random) -> Spelled {
    match random.below(7) {
        0 => in_rule("id", &json!(joined(random, &ID))),
        1 => in_rule("key_pattern", &json!(joined(random, &PATTERN))),
        2 => {
            let value = network(random);
            let rules = json!({"block": {"ip": [value]}});
            stored(
                rules,
                format!(
                    "INSERT INTO rate_limit_lists (list, attribute, value) VALUES ('block', 'ip', {})",
                    text(&value)
                ),
            )
        }
        3 => {
            let (one, other) = (random.pick(&SAME), random.pick(&SAME));
            overrides("per-ip", "ip", [one, other])
        }
        4 => {
            let one = joined(random, &PATH);
            let other = if random.once_in(2) { joined(random, &PATH) } else { format!("/{one}/") };
            overrides("per-endpoint", "endpoint", [&one, &other])
        }
        5 => {
            let unit = joined(random, &ID);
            stored(json!({"units": [unit]}), super::by_hand::declare(&[&unit]))
        }
        _ => {
            let endpoint = joined(random, &ENDPOINT);
            let start = random.pick(&["/", "/", "GET /", ""]);
            in_rule("endpoints", &json!([format!("{start}{endpoint}")]))
        }
    }
}

/// Returns two overrides of a rule, each for a key of one placeholder.
fn overrides(rule: &str, name: &str, values: [&str; 2]) -> Spelled {
    let special = |value: &str| json!({"rule": rule, "key": {name: value}, "verdict": "block"});
    let row = |value: &str| format!("('{rule}', {}, 'block')", text(&json!({name: value}).to_string()));
    let rows = values.map(row).join(", ");
    stored(
        json!({"overrides": values.map(special)}),
        format!("INSERT INTO rate_limit_overrides (rule_id, key, verdict) VALUES {rows}"),
    )
}

fn joined(random: &mut Random, parts: &[&str]) -> String {
    (0..random.below(7)).map(|_| random.pick(parts)).collect()
}

/// Returns a network in which a fragment, possibly empty, replaces up to two characters.
fn network(random: &mut Random) -> String {
    let network = random.pick(&NETWORKS);
    let start = random.below(network.len() as u64 + 1) as usize;
    let end = network.len().min(start + random.below(3) as usize);
    format!("{}{}{}", &network[..start], random.pick(&PUT_IN), &network[end..])
}

/// Returns a rule with this value in this field.
fn in_rule(field: &str, value: &Value) -> Spelled {
    let mut rule = per_user("odd", 1);
    rule[field] = value.clone();
    let statement = super::by_hand::insert(&serde_json::from_value(rule.clone()).unwrap());
    stored(json!({"rules": [rule]}), statement)
}

fn stored(rules: Value, statement: String) -> Spelled {
    let mut rules: Rules = serde_json::from_value(rules).unwrap();
    rules.rules.extend(there());
    Spelled { rules, statement }
}

/// Returns the rules that must already be stored.
pub fn there() -> [trypema::rules::Rule; 3] {
    let strategy = json!({"fixed_window": {"limit": 1, "window": "1s"}});
    let per = |scope: &str| json!({"id": format!("per-{scope}"), "scope": scope, "strategy": strategy});
    let [per_ip, per_endpoint] = ["ip", "endpoint"].map(|scope| serde_json::from_value(per(scope)).unwrap());
    [super::live(), per_ip, per_endpoint]
}
