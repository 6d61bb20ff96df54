//! Answers of the server or of its Redis that never arrive.

use trypema_testkit::redis::{FaultProxy, Server, wait_until};

use super::{CHAT, LIMIT, MOCK_USAGE, PROMPT, Site, chat, model, stream};

/// With the prompt, a reservation of 40 tokens.
const MAX_TOKENS: u64 = 32;
/// An API key.
const SETTLED: &str = "settled";
/// The test ends the pause much earlier.
const PAUSE_MS: &str = "60000";

type Fault = fn(&FaultProxy);

pub fn nothing_stays_reserved_without_an_answer(site: &mut Site) {
    let redis = Server::start().unwrap();
    site.stop_service();
    site.start_service(&["--provider", "redis", "--redis-url", &redis.url(), "--redis-deadline", "2s"], None);
    a_reservation_without_an_answer_is_released(site);
    let left = left_after_a_settlement_without_an_answer(site);
    a_reservation_while_redis_pauses_is_undone(site, &redis);
    // Meanwhile, the hook has repeated the settlement.
    assert!(site.left(SETTLED) >= left, "what was settled is not counted again");
    for log in [site.proxy.log(), site.lenient.log()] {
        assert!(!log.contains("may stay counted"), "{log}");
    }
}

fn a_reservation_without_an_answer_is_released(site: &Site) {
    let faults: [(&str, Fault); 2] = [("closed", FaultProxy::cut_on_reply), ("refused", FaultProxy::refuse)];
    for (key, fault) in faults {
        assert_eq!(site.chat(key, "mock", MAX_TOKENS).status, 200);
        site.wait_for(key, LIMIT - MOCK_USAGE);
        fault(&site.faults);
        let reply = site.chat(key, "mock", MAX_TOKENS);
        site.faults.heal();
        assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{key}: {reply:?}");
        wait_until_nothing_is_reserved(site, key);
        assert_eq!(site.left(key), LIMIT - MOCK_USAGE, "{key}: only the call that was admitted is counted");
    }
}

fn left_after_a_settlement_without_an_answer(site: &Site) -> u64 {
    let mut stream = stream(&site.proxy, SETTLED, "breaking", 92);
    stream.next().unwrap();
    site.faults.cut_on_reply();
    assert!(stream.count() < model::WORDS);
    wait_until("the stream to be settled", || site.left(SETTLED) > 0).unwrap();
    site.faults.heal();
    let left = site.left(SETTLED);
    assert!((LIMIT - PROMPT - 40..LIMIT - PROMPT).contains(&left), "{left} tokens left");
    left
}

fn a_reservation_while_redis_pauses_is_undone(site: &Site, redis: &Server) {
    assert_eq!(site.chat("paused", "mock", MAX_TOKENS).status, 200);
    site.wait_for("paused", LIMIT - MOCK_USAGE);
    let mut control = redis.control().unwrap();
    // Scripts wait until the end of the pause, and run then.
    control.command(&["CLIENT", "PAUSE", PAUSE_MS, "WRITE"]).unwrap();
    let replies =
        [&site.proxy, &site.lenient].map(|proxy| proxy.post(CHAT, "paused", &chat("mock", MAX_TOKENS)));
    control.command(&["CLIENT", "UNPAUSE"]).unwrap();
    // The lenient proxy lets the call pass uncounted.
    assert_eq!(replies.map(|reply| reply.status), [503, 200]);
    wait_until_nothing_is_reserved(site, "paused");
    assert_eq!(site.left("paused"), LIMIT - MOCK_USAGE);
    assert_eq!(site.chat("paused", "mock", MAX_TOKENS).status, 200);
    site.wait_for("paused", LIMIT - 2 * MOCK_USAGE);
}

/// Waits until no call holds tokens of an API key, and the server has nothing to undo.
fn wait_until_nothing_is_reserved(site: &Site, key: &str) {
    let counter = || site.service.get(&format!("/v1/keys/tokens-per-api-key%7Capi_key={key}"));
    let is_idle = || {
        let reply = counter();
        // Without holders the field is absent. The status is 503 until the server has noticed that Redis answers.
        reply.status == 200
            && reply.json().get("holders").is_none()
            && site.service.metric("trypema_undo_pending") == 0.0
    };
    wait_until("the tokens to be released", is_idle)
        .unwrap_or_else(|error| panic!("{key}: {error}: {:?}\n{}", counter(), site.proxy.log()));
}
