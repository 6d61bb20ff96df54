//! Endpoints in keys and lists, in different spellings.

use serde_json::{Value, json};

use super::without;
use crate::harness::Service;
use crate::scene::{Scene, done};

fn is_allowed(service: &Service, endpoint: &str) -> bool {
    let question = json!({"attributes": {"endpoint": endpoint}}).to_string();
    service.post("/v1/check", &question).json()["allowed"] == json!(true)
}

#[test]
fn a_block_holds_for_every_way_to_write_its_endpoint() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    let rule = json!({"id": "each", "scope": "endpoint", "strategy": {"fixed_window": {"limit": 100, "window": "365d"}}});
    done(&service, "PUT", "/v1/ruleset", &json!({"rules": [rule]}));
    let block = json!({"verdict": "block"});
    let key = |endpoint: &str| format!("/v1/overrides/each%7Cendpoint={endpoint}");
    let blocked = without(&service, "PUT", &key("%2Fadmin%2F"), &block);
    assert_eq!(blocked.status, 200, "{blocked:?}");
    for endpoint in ["/admin", "/admin/", "//admin", "/%61dmin"] {
        assert!(!is_allowed(&service, endpoint), "{endpoint}");
    }
    assert!(is_allowed(&service, "/admins"));
    let shown = service.get(&key("%2Fadmin"));
    assert_eq!((shown.status, &shown.json()["key"]["endpoint"]), (200, &json!("/admin")), "{shown:?}");
    let again = without(&service, "PUT", &key("%2F%2Fadmin"), &block);
    assert_eq!((again.status, &again.json()["changes"]), (200, &json!([])), "{again:?}");
    assert_eq!(without(&service, "DELETE", &key("%2Fadmin%2F%2F"), &Value::Null).status, 200);
    assert!(is_allowed(&service, "/admin"));

    let list = |endpoint: &str| format!("/v1/lists/block/endpoint/{endpoint}");
    assert_eq!(without(&service, "PUT", &list("%2Fadmin%2F"), &Value::Null).status, 200);
    assert!(!is_allowed(&service, "/admin") && !is_allowed(&service, "//admin/"));
    assert_eq!(without(&service, "DELETE", &list("%2Fadmin"), &Value::Null).status, 200);
    assert!(is_allowed(&service, "/admin"));
}

#[test]
fn two_overrides_for_one_path_are_refused_by_hand() {
    let scene = Scene::start();
    let insert = |id: &str, key: &str| {
        format!(
            "INSERT INTO rate_limit_overrides (rule_id, key, verdict) VALUES ('{id}', '{{\"endpoint\": \"{key}\"}}', 'block')"
        )
    };
    let rule = "INSERT INTO rate_limit_rules (id, scope, algorithm, limit_count, window_seconds) VALUES ('each', 'endpoint', 'fixed_window', 1, 1)";
    scene.database.sql(rule).unwrap();
    scene.database.sql(&insert("each", "/admin/")).unwrap();
    for same in ["/admin", "//admin", "/%61dmin", "/x/../admin?q"] {
        let error = scene.database.sql(&insert("each", same)).unwrap_err().to_string();
        assert!(error.contains("one_override_for_each_key"), "{same}: {error}");
    }
    let error = scene.database.sql(&insert("each", "/%ff")).unwrap_err().to_string();
    assert!(error.contains("endpoint_of_key_is_text"), "{error}");
    scene.database.sql(&insert("each", "/admin/x")).unwrap();
}
