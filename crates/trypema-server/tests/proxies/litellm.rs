//! A real LiteLLM proxy with the hook of `deploy/litellm`: it reserves tokens and settles what calls used.

#[path = "litellm/lost_answers.rs"]
mod lost_answers;
#[path = "litellm/model.rs"]
mod model;
#[path = "litellm/parameters.rs"]
mod parameters;
#[path = "litellm/proxy.rs"]
mod proxy;

use std::thread;

use serde_json::{Value, json};
use trypema_testkit::program::FreePort;
use trypema_testkit::redis::{FaultProxy, wait_until};

use crate::client::Reply;
use crate::deployed;
use crate::harness::{Service, trypema};

use proxy::LiteLlm;

const CHAT: &str = "/v1/chat/completions";
/// A route that LiteLLM passes on to Anthropic.
const PASS_THROUGH: &str = "/anthropic/v1/messages";
/// The limit of `deploy/litellm/rules.yaml`, per API key and minute.
const LIMIT: u64 = 100;
/// The tokens that the hook counts in [`chat`]'s prompt.
const PROMPT: u64 = 8;
/// Less than the [`model::WORDS`] of a stream take.
const RESERVATION_SECONDS: &str = "8";
/// The id of the first call.
const FIRST_CALL: &str = "the-first-call";
/// The usage that LiteLLM's mock responses claim.
const MOCK_USAGE: u64 = 30;

/// Starting LiteLLM takes most of the time, so the cases share one. Each uses an API key of its own.
#[test]
fn tokens_are_reserved_and_settled() {
    let mut site = Site::start();
    thread::scope(|scope| {
        scope.spawn(|| parallel_calls_stay_within_the_limit(&site));
        scope.spawn(|| a_call_that_never_fits_is_told_so(&site));
        scope.spawn(|| a_failed_call_gives_everything_back(&site));
        scope.spawn(|| each_attempt_that_times_out_keeps_its_estimate(&site));
        scope.spawn(|| a_fallback_is_settled_although_the_first_attempt_failed(&site));
        scope.spawn(|| a_fallback_after_a_denial_of_another_hook_reserves_once(&site));
        scope.spawn(|| a_pass_through_route_is_refused(&site));
        scope.spawn(|| a_pass_through_route_can_be_counted_by_estimate(&site));
        scope.spawn(|| parameters::clients_cannot_choose_their_estimates(&site));
        scope.spawn(|| a_stream_left_midway_settles_what_was_sent(&site));
        scope.spawn(|| a_broken_stream_settles_what_was_sent(&site));
        scope.spawn(|| a_long_stream_is_renewed(&site, "slow"));
        // LiteLLM begins and continues such a stream in different tasks.
        scope.spawn(|| a_long_stream_is_renewed(&site, "slow-with-keepalives"));
    });
    lost_answers::nothing_stays_reserved_without_an_answer(&mut site);
    no_call_was_settled_in_vain(&site);
    nothing_passes_with_a_wrong_token(&mut site);
    without_trypema_the_setting_decides(&mut site);
    a_proxy_that_is_stopped_settles_what_was_sent(&mut site);
}

fn parallel_calls_stay_within_the_limit(site: &Site) {
    let replies: Vec<Reply> = thread::scope(|scope| {
        let calls: Vec<_> = (0..20).map(|_| scope.spawn(|| site.chat("parallel", "mock", 32))).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let (allowed, denied): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.status == 200);
    let used: u64 = allowed.iter().map(|reply| reply.json()["usage"]["total_tokens"].as_u64().unwrap()).sum();
    // Two estimates of 40 fit at once. A third call fits if it comes after both were settled.
    assert!((2 * MOCK_USAGE..=LIMIT).contains(&used), "{used} tokens used");
    for reply in denied {
        assert_eq!(reply.status, 429, "{reply:?}");
        let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&wait), "{reply:?}");
        assert_eq!(reply.header("x-should-retry"), Some("true"), "{reply:?}");
        let error = &reply.json()["error"];
        assert_eq!((&error["type"], &error["code"]), (&json!("tokens"), &json!("429")), "{error}");
        let message = error["message"].as_str().unwrap();
        let rule = "rule tokens-per-api-key (100 tokens a minute with each API key): this call needs 40 tokens, and ";
        let when = format!(" of 100 are left; try again in {wait} s");
        assert!(message.starts_with(rule) && message.ends_with(&when), "{message}");
    }
    site.wait_for("parallel", LIMIT - used);
}

fn a_call_that_never_fits_is_told_so(site: &Site) {
    let reply = site.chat("too-large", "mock", 93);
    assert_eq!((reply.status, reply.header("retry-after")), (429, None), "{reply:?}");
    assert_eq!(reply.header("x-should-retry"), Some("false"), "{reply:?}");
    let message = &reply.json()["error"]["message"];
    let expected = "rule tokens-per-api-key (100 tokens a minute with each API key) never allows 101 tokens at once: its \
                    limit is 100; lower max_tokens or shorten the prompt";
    assert_eq!(message, expected);
    assert_eq!(site.left("too-large"), LIMIT);
    assert_eq!(site.chat("too-large", "mock", 92).status, 200);
    site.wait_for("too-large", LIMIT - MOCK_USAGE);
}

fn a_failed_call_gives_everything_back(site: &Site) {
    let asked = site.proxy.model.asked();
    let reply = site.chat("failed", "failing", 92);
    assert_eq!(reply.status, 500, "{reply:?}");
    assert!(site.proxy.model.asked() > asked);
    site.wait_for("failed", LIMIT);
}

fn each_attempt_that_times_out_keeps_its_estimate(site: &Site) {
    let mut request = chat("hanging", 20);
    request["timeout"] = 0.3.into();
    let asked = site.proxy.model.asked();
    let reply = site.proxy.post(CHAT, "timeout", &request);
    assert_eq!(reply.status, 408, "{reply:?}");
    assert!(site.proxy.model.asked() >= asked + 2);
    site.wait_for("timeout", LIMIT - 2 * (PROMPT + 20));
}

fn a_fallback_is_settled_although_the_first_attempt_failed(site: &Site) {
    let reply = site.chat("fallback", "failing-with-fallback", 92);
    assert_eq!(reply.status, 200, "{reply:?}");
    site.wait_for("fallback", LIMIT - MOCK_USAGE);
}

fn a_fallback_after_a_denial_of_another_hook_reserves_once(site: &Site) {
    // Two such estimates do not fit.
    let reply = site.chat("denied", "denied-with-fallback", 92);
    assert_eq!(reply.status, 200, "{reply:?}");
    site.wait_for("denied", LIMIT - MOCK_USAGE);
}

fn a_pass_through_route_is_refused(site: &Site) {
    let reply = site.proxy.post(PASS_THROUGH, "refused", &chat("claude", 10));
    assert_eq!(reply.status, 403, "{reply:?}");
    for text in [reply.body, site.proxy.log()] {
        assert!(text.contains("TRYPEMA_UNMEASURED_CALLS"), "{text}");
    }
    assert_eq!(site.left("refused"), LIMIT);
}

fn a_pass_through_route_can_be_counted_by_estimate(site: &Site) {
    let reply = site.lenient.post(PASS_THROUGH, "estimated", &chat("claude", 200));
    assert_eq!(reply.status, 429, "{reply:?}");
    let reply = site.lenient.post(PASS_THROUGH, "estimated", &chat("claude", 50));
    assert_eq!(reply.status, 200, "{reply:?}");
    site.wait_for("estimated", LIMIT - model::MESSAGE_USAGE);
}

fn a_stream_left_midway_settles_what_was_sent(site: &Site) {
    let mut stream = stream(&site.proxy, "left", "slow", 92);
    for _ in 0..3 {
        stream.next().unwrap();
    }
    assert_eq!(site.left("left"), 0, "everything is reserved while the stream runs");
    drop(stream);
    wait_until("the stream to be settled", || site.left("left") > 0).unwrap();
    // Each word of the model has a token or two. Some words were sent but not read.
    let used = LIMIT - site.left("left");
    assert!((PROMPT + 3..PROMPT + 40).contains(&used), "{used} tokens used");
}

fn a_broken_stream_settles_what_was_sent(site: &Site) {
    let chunks = stream(&site.proxy, "broken", "breaking", 92).count();
    // A busy LiteLLM drops the last words, which it had not read when the connection broke.
    assert!(chunks > 1, "{chunks}");
    wait_until("the stream to be settled", || site.left("broken") > 0).unwrap();
    let used = LIMIT - site.left("broken");
    assert!((PROMPT + 1..PROMPT + 40).contains(&used), "{used} tokens used");
}

fn a_long_stream_is_renewed(site: &Site, model: &str) {
    // It takes longer than `RESERVATION_SECONDS`, and what has ended cannot be settled.
    let key = format!("long-{model}");
    let chunks = stream(&site.lenient, &key, model, 92).count();
    assert!(chunks >= model::WORDS, "{chunks}");
    site.wait_for(&key, LIMIT - model::USAGE);
}

fn no_call_was_settled_in_vain(site: &Site) {
    for log in [site.proxy.log(), site.lenient.log()] {
        // On a busy machine, the first call takes longer than `RESERVATION_SECONDS`.
        let mut lines = log.lines().filter(|line| !line.contains(FIRST_CALL));
        assert!(
            !lines.any(|line| line.contains("nothing to ") || line.contains("could not settle")),
            "{log}"
        );
    }
}

fn nothing_passes_with_a_wrong_token(site: &mut Site) {
    site.stop_service();
    site.start_service(&[], Some("the-right-token-of-this-server"));
    // Trypema answers the first wrong tokens with 401, and then with 429.
    for _ in 0..12 {
        let reply = site.lenient.post(CHAT, "wrong-token", &chat("mock", 10));
        assert_eq!(reply.status, 500, "{reply:?}");
    }
    let log = site.lenient.log();
    let refused: Vec<&str> = log.lines().filter(|line| line.contains("Trypema refused")).collect();
    assert_eq!(refused.len(), 12, "{log}");
    for (line, status) in [(refused[0], " 401: "), (refused[11], " 429: ")] {
        assert!(line.contains(status) && line.contains("TRYPEMA_CALLER_TOKEN"), "{line}");
    }
}

fn without_trypema_the_setting_decides(site: &mut Site) {
    site.stop_service();
    let reply = site.chat("stopped", "mock", 10);
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{reply:?}");
    let reply = site.lenient.post(CHAT, "stopped", &chat("mock", 10));
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(site.lenient.log().contains("applying fail_open"), "{}", site.lenient.log());
}

fn a_proxy_that_is_stopped_settles_what_was_sent(site: &mut Site) {
    site.start_service(&[], None);
    let mut running = stream(&site.proxy, "interrupted", "slow", 92);
    running.next().unwrap();
    assert_eq!(site.left("interrupted"), 0);
    // The hook still waits for the answer to this reservation, which never comes.
    site.faults.drop_replies();
    let _waiting = stream(&site.proxy, "unanswered", "slow", 92);
    wait_until("the tokens to be reserved", || site.left("unanswered") == 0).unwrap();
    // Before replies arrive again: on a busy machine the hook may have repeated its request.
    site.proxy.interrupt();
    site.faults.heal();
    wait_until("the stream to be settled", || site.left("interrupted") > 0)
        .unwrap_or_else(|error| panic!("{error}:\n{}", site.proxy.log()));
    site.wait_for("unanswered", LIMIT);
}

/// Two LiteLLMs, each with a model behind it, and the server.
struct Site {
    service: Service,
    port: FreePort,
    /// Between `proxy` and the server.
    faults: FaultProxy,
    /// With the default settings for what cannot be limited or checked.
    proxy: LiteLlm,
    /// With short reservations, and settings that let more calls pass.
    lenient: LiteLlm,
}

impl Site {
    fn start() -> Self {
        let port = FreePort::any().unwrap();
        let service = serve(&port, &[], None);
        let faults = FaultProxy::start(service.address).unwrap();
        let strict = [
            ("TRYPEMA_ALLOWED_PARAMETERS", "timeout, surprise_of_the_operator"),
            ("TRYPEMA_DEFAULT_OUTPUT_TOKENS", "30"),
        ];
        let lenient = [
            ("TRYPEMA_ON_FAILURE", "fail_open"),
            ("TRYPEMA_UNMEASURED_CALLS", "estimate"),
            ("TRYPEMA_CALLER_TOKEN", "a-wrong-token"),
            ("TRYPEMA_RESERVATION_SECONDS", RESERVATION_SECONDS),
        ];
        let (proxy, lenient) = thread::scope(|scope| {
            let lenient = scope.spawn(|| LiteLlm::start(service.address, &lenient));
            (LiteLlm::start(faults.addr(), &strict), lenient.join().unwrap())
        });
        // The first request takes seconds, in which LiteLLM answers nothing else.
        for proxy in [&proxy, &lenient] {
            let headers = [("content-type", "application/json"), ("x-litellm-call-id", FIRST_CALL)];
            let reply = proxy.send(CHAT, "first", &headers, &chat("mock", 10).to_string());
            assert_eq!(reply.status, 200, "{reply:?}");
        }
        Self { service, port, faults, proxy, lenient }
    }

    fn stop_service(&mut self) {
        assert_eq!(self.service.stop().code(), Some(0));
    }

    /// Starts the server again, at the same address, after it was stopped.
    fn start_service(&mut self, flags: &[&str], token: Option<&str>) {
        self.service = serve(&self.port, flags, token);
    }

    fn chat(&self, key: &str, model: &str, max_tokens: u64) -> Reply {
        self.proxy.post(CHAT, key, &chat(model, max_tokens))
    }

    /// Returns the remaining tokens of an API key.
    fn left(&self, key: &str) -> u64 {
        let request = json!({"attributes": {"api_key": key}, "costs": {"tokens": 0}, "mode": "peek"});
        let reply = self.service.post("/v1/check", &request.to_string()).json();
        reply["rules"][0]["remaining"].as_u64().unwrap_or_else(|| panic!("{reply}"))
    }

    fn wait_for(&self, key: &str, left: u64) {
        let settled = wait_until("the call to be settled", || self.left(key) == left);
        settled.unwrap_or_else(|error| {
            let logs = [self.proxy.log(), self.lenient.log()].join("\n");
            panic!("{key}: {} left, not {left}: {error}\n{logs}", self.left(key))
        });
    }
}

/// Sends a request with a streamed response, and returns its chunks.
fn stream(proxy: &LiteLlm, key: &str, model: &str, max_tokens: u64) -> impl Iterator<Item = Value> + use<> {
    let mut request = chat(model, max_tokens);
    request["stream"] = true.into();
    proxy.stream(key, &request)
}

/// Starts a server with the sample's rules and these flags. A server without a caller token accepts any.
fn serve(port: &FreePort, flags: &[&str], token: Option<&str>) -> Service {
    Service::of(|_| {
        let mut command = trypema();
        command.args(["serve", "--listen", &format!("127.0.0.1:{}", port.number()), "--rules"]);
        command.arg(deployed("litellm/rules.yaml")).args(flags);
        command.envs(token.map(|token| ("TRYPEMA_CALLER_TOKEN", token)));
        command
    })
}

/// A chat request, which Anthropic's protocol understands, too.
fn chat(model: &str, max_tokens: u64) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": max_tokens})
}
