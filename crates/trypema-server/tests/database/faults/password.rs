//! After the database password has changed, the server reads the file with the database URL again.

use std::fs;

use trypema_testkit::redis::wait_until;

use super::load::{Load, rule};
use super::{FAILURES, wait_until_current, wait_until_stale};
use crate::harness::{Service, trypema};
use crate::scene::{Scene, done, per_user, send};

const OLD: &str = "old-and-secret";
const NEW: &str = "new/and@secret";

#[test]
fn a_rotated_password_is_taken_from_its_file() {
    let scene = Scene::start();
    scene.database.set_password(OLD).unwrap();
    let service = Service::of(|directory| {
        let file = directory.join("database-url");
        fs::write(&file, scene.database.url_with_password(OLD) + "\n").unwrap();
        let mut command = trypema();
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--rules-poll", "1s", "--database-url-file"])
            .arg(file);
        command
    });
    done(&service, "POST", "/v1/rules", &rule());
    let load = Load::start(&service);
    scene.database.set_password(NEW).unwrap();
    scene.database.disconnect_all().unwrap();
    wait_until("the database to refuse the password", || service.metric(FAILURES) > 1.0).unwrap();
    wait_until_stale(&service, 2);
    assert_eq!(send(&service, "POST", "/v1/rules", &per_user("another", 5)).status, 503);
    load.wait_for_many();
    fs::write(service.program.directory().join("database-url"), scene.database.url_with_password(NEW))
        .unwrap();
    wait_until_current(&service);
    done(&service, "POST", "/v1/rules", &per_user("another", 2_000_000));
    load.stop();
    let log = service.program.log();
    assert!(log.contains("rules: PostgreSQL is reachable again"), "{log}");
    for secret in ["and-secret", "and@secret", "and%40secret"] {
        assert!(!log.contains(secret), "the log tells a password: {log}");
    }
}
