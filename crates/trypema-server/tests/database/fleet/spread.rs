//! A change made on one server is in force on both, also for keys in use.

use serde_json::{Value, json};

use super::{Fleet, ann, limit, set_limit, soon, spends, would_pass};
use crate::harness::Service;
use crate::scene::{done, is_allowed};

#[test]
fn a_change_is_enforced_on_both_with_counters_in_redis() {
    let fleet = Fleet::start("redis");
    let servers = &fleet.servers;
    // Four of ten units, in one counter.
    assert!(spends(&servers[0], 3) && spends(&servers[1], 1));
    change(servers, 5);
    assert_eq!(servers.each_ref().map(|server| ann(server)["remaining"].clone()), [json!(1), json!(1)]);
    assert!(!spends(&servers[1], 2) && spends(&servers[1], 1) && !spends(&servers[0], 1));
    change(servers, 20);
    assert!(spends(&servers[0], 15) && !spends(&servers[1], 1));
    keeps_history(servers);
}

#[test]
fn a_change_is_enforced_on_both_with_counters_in_memory() {
    let fleet = Fleet::start("memory");
    let servers = &fleet.servers;
    assert!(servers.iter().all(|server| spends(server, 4)));
    change(servers, 5);
    assert!(servers.iter().all(|server| !spends(server, 2) && spends(server, 1) && !spends(server, 1)));
    change(servers, 20);
    assert!(servers.iter().all(|server| spends(server, 15) && !spends(server, 1)));
    keeps_history(servers);
}

/// A server cannot spend units that the other has leased, so only the sum is known.
#[test]
fn a_change_is_enforced_on_both_with_counters_on_leases() {
    let fleet = Fleet::start("hybrid");
    let servers = &fleet.servers;
    let allowed = |times: usize| {
        let each = (0..times).flat_map(|_| servers.iter());
        each.filter(|server| spends(server, 1)).count()
    };
    let first = allowed(2);
    assert_eq!(first, 4);
    change(servers, 5);
    let second = allowed(10);
    assert!(first + second <= 5, "{second} beyond the first {first}");
    change(servers, 20);
    let third = allowed(30);
    assert!(third > 0 && first + second + third <= 20, "{third} beyond the first {first} and {second}");
    keeps_history(servers);
}

/// Changes the limit through the first server, whose response comes when the change is in force there.
fn change(servers: &[Service], to: u64) {
    set_limit(&servers[0], to);
    assert_eq!(limit(&servers[0]), Some(to), "it is in force where it was made");
    soon(servers, &format!("a limit of {to}"), |server| limit(server) == Some(to));
}

/// Both servers report the same three revisions.
fn keeps_history(servers: &[Service; 2]) {
    let bodies = servers.each_ref().map(|server| server.get("/v1/ruleset/history?about=per-user").json());
    assert_eq!(bodies[0], bodies[1]);
    let text = bodies[0].to_string();
    for limit in [10, 5, 20] {
        assert!(text.contains(&format!("\"limit\":{limit}")), "no limit of {limit} in {text}");
    }
}

#[test]
fn what_is_said_of_one_key_is_enforced_on_both() {
    const ANN: &str = "/v1/overrides/per-user%7Cuser=ann";
    let fleet = Fleet::start("redis");
    let servers @ [one, other] = &fleet.servers;
    done(one, "PUT", ANN, &json!({"verdict": "block"}));
    soon(servers, "a block", |server| !would_pass(server, "ann"));
    assert!(servers.iter().all(|server| !is_allowed(server, "ann") && is_allowed(server, "bob")));
    assert_eq!(ann(other)["blocked"], json!(true));
    done(other, "DELETE", ANN, &Value::Null);
    soon(servers, "the end of a block", |server| would_pass(server, "ann"));
    assert!(servers.iter().all(|server| is_allowed(server, "ann")));
    done(one, "PUT", ANN, &json!({"strategy": {"fixed_window": {"limit": 1_000, "window": "300d"}}}));
    soon(servers, "a limit of her own", |server| limit(server) == Some(1_000));
    assert!(spends(other, 500) && spends(one, 400) && !spends(other, 400));
    done(other, "PUT", ANN, &json!({"verdict": "allow"}));
    soon(servers, "a pass", |server| spends(server, 5_000));
    done(one, "DELETE", ANN, &Value::Null);
    soon(servers, "the rule's limit", |server| limit(server) == Some(10));
}

#[test]
fn what_is_listed_or_written_by_hand_is_enforced_on_both() {
    let fleet = Fleet::start("redis");
    let Fleet { servers, scene, .. } = &fleet;
    let [one, other] = servers;
    done(one, "PUT", "/v1/lists/block/user/mallory", &Value::Null);
    soon(servers, "an entry of the block list", |server| !would_pass(server, "mallory"));
    assert!(servers.iter().all(|server| !is_allowed(server, "mallory") && is_allowed(server, "bob")));
    done(other, "DELETE", "/v1/lists/block/user/mallory", &Value::Null);
    soon(servers, "the end of an entry", |server| would_pass(server, "mallory"));
    done(other, "PUT", "/v1/lists/allow/user/ann", &Value::Null);
    soon(servers, "an entry of the allow list", |server| spends(server, 5_000));
    scene.database.sql("DELETE FROM rate_limit_lists").unwrap();
    soon(servers, "a list that was emptied by hand", |server| !spends(server, 5_000));
    scene.database.sql("UPDATE rate_limit_rules SET limit_count = 3").unwrap();
    soon(servers, "a limit that was set by hand", |server| limit(server) == Some(3));
    scene.database.sql("DELETE FROM rate_limit_rules").unwrap();
    soon(servers, "a rule that was deleted by hand", |server| limit(server).is_none());
}

#[test]
fn after_many_quick_changes_both_are_at_the_last() {
    let fleet = Fleet::start("memory");
    let Fleet { servers, scene, .. } = &fleet;
    for limit in 11..=30 {
        set_limit(&servers[limit as usize % 2], limit);
    }
    soon(servers, "the last of many changes", |server| limit(server) == Some(30));
    // One revision for the rule, and one for each change.
    assert_eq!(scene.database.sql("SELECT revision FROM rate_limit_state").unwrap(), "21");
    soon(servers, "the last revision", |server| server.metric("trypema_rules_revision") == 21.0);
}
