//! A Redis that is unreachable at the start, or refuses the login.

use trypema_testkit::program::Program;
use trypema_testkit::redis::{Server, wait_until};

use super::kill::RECOVERY;
use super::policy::{Policy, RULES};
use crate::harness::{Service, trypema};
use crate::timing::Stopwatch;

const RIGHT: &str = "right-and-secret";
const WRONG: &str = "wrong-but-secret";

#[test]
fn a_redis_that_comes_later_is_used() {
    for provider in ["redis", "hybrid"] {
        let redis = Server::builder().password(RIGHT).start().unwrap();
        redis.kill_9().unwrap();
        let mut service = Service::with_rules(RULES, &["--provider", provider, "--redis-url", &redis.url()]);
        let line = service.program.line("store: Redis is unreachable").unwrap();
        assert!(line.contains("starting anyway, applying on_store_failure=error"), "{line}");
        let ready = service.get("/readyz");
        assert_eq!((ready.status, ready.json()["provider"].as_str()), (200, Some(provider)));
        let ask = || service.post("/v1/check", &Policy::Error.question(0));
        let without = ask();
        assert_eq!((without.status, without.header("retry-after")), (503, Some("1")), "{without:?}");
        redis.restart().unwrap();
        let watch = Stopwatch::start();
        wait_until("redis to be used", || ask().status == 200).unwrap();
        assert!(watch.elapsed() <= RECOVERY, "{:?}", watch.elapsed());
        assert_eq!(service.get("/readyz").json()["store"], "connected");
        assert!(!service.program.log().contains(RIGHT), "the log tells the password");
    }
}

#[test]
fn a_wrong_password_ends_the_start_and_is_not_told() {
    let redis = Server::builder().password(RIGHT).start().unwrap();
    let url = redis.url_as("", WRONG);
    for provider in ["redis", "hybrid"] {
        let mut program = Program::start(|_| {
            let mut command = trypema();
            command
                .args(["serve", "--listen", "127.0.0.1:0", "--provider", provider])
                .env("TRYPEMA_REDIS_URL", &url);
            command
        })
        .unwrap();
        let ended = program.end().unwrap();
        let log = program.log();
        assert_eq!(ended.code(), Some(1), "{log}");
        assert!(log.to_lowercase().contains("redis"), "{log}");
        assert!(log.contains("WRONGPASS") || log.contains("password"), "{log}");
        assert!(!log.contains(WRONG) && !log.contains(RIGHT), "{log}");
        assert!(!log.contains("listens on") && !log.contains("panicked"), "{log}");
    }
}
