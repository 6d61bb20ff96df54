//! Requests without an attribute that a rule needs: an address that the server does not know, or a header
//! that the client omits.

use http::{HeaderName, Request};
use trypema::http::TrustedProxies;
use trypema::tower::{
    HeaderKeyExtractor, PeerIpKeyExtractor, RateLimitLayer, RequestView, SmartIpKeyExtractor,
};

use super::scene::{engine, grpc_call, hourly_layer, request, send, to, with_header};

const BY_ADDRESS: &str = "
rules:
  - {id: per-ip, scope: ip, endpoints: [/api/**], strategy: {fixed_window: {limit: 1, window: 1h}}}
";

/// A request without a peer address in its extensions, as in a server that lacks
/// `into_make_service_with_connect_info`.
fn without_address(path: &str) -> Request<()> {
    to(Request::new(()), path)
}

fn smart() -> SmartIpKeyExtractor {
    SmartIpKeyExtractor::new(TrustedProxies::new(["10.0.0.0/8".parse().unwrap()]))
}

#[tokio::test]
async fn a_server_that_cannot_tell_addresses_fails_where_a_rule_needs_them() {
    let layers = [
        RateLimitLayer::rules(engine(BY_ADDRESS)).attribute("ip", PeerIpKeyExtractor).build().unwrap(),
        RateLimitLayer::rules(engine(BY_ADDRESS)).attribute("ip", smart()).build().unwrap(),
        RateLimitLayer::rules(engine(BY_ADDRESS)).build().unwrap(),
    ];
    for layer in layers {
        for _ in 0..3 {
            // The peer is unknown, so its `X-Forwarded-For` is not trusted.
            let forwarded = with_header(without_address("/api/x"), "x-forwarded-for", "203.0.113.9");
            let failed = send(&layer, forwarded).await;
            assert_eq!(failed.status, 500, "{failed:?}");
            let detail = failed.json()["detail"].as_str().unwrap().to_owned();
            let told =
                if cfg!(debug_assertions) { "into_make_service_with_connect_info" } else { "not set up" };
            assert!(detail.contains(told), "{detail}");
        }
        assert_eq!(send(&layer, without_address("/other")).await.status, 200, "no rule needs it there");
    }
}

#[tokio::test]
async fn whatever_else_needs_addresses_fails_too() {
    let rule = |rest: &str| {
        format!("rules: [{{id: r, {rest}, strategy: {{fixed_window: {{limit: 9, window: 1h}}}}}}]")
    };
    let failing = [
        rule("scope: user, key_pattern: '{ip} {method}'"),
        rule("scope: ip, if_missing: deny"),
        rule("scope: ip, if_missing: error"),
        rule("scope: global") + "\nblock: {ip: [192.0.2.7]}",
        rule("scope: global") + "\nallow: {ip: [192.0.2.7]}",
    ];
    for rules in failing {
        let layer =
            RateLimitLayer::rules(engine(&rules)).attribute("ip", PeerIpKeyExtractor).build().unwrap();
        assert_eq!(send(&layer, without_address("/")).await.status, 500, "{rules}");
        assert_eq!(send(&layer, request()).await.status, 200, "{rules}");
    }
    let passing =
        [rule("scope: ip, action: log_only"), rule("scope: ip, enabled: false"), rule("scope: global")];
    for rules in passing {
        let layer =
            RateLimitLayer::rules(engine(&rules)).attribute("ip", PeerIpKeyExtractor).build().unwrap();
        assert_eq!(send(&layer, without_address("/")).await.status, 200, "{rules}");
    }
    // The address may have any attribute name.
    let rules = rule("scope: user, key_pattern: '{client}'");
    let layer = RateLimitLayer::rules(engine(&rules)).attribute("client", smart()).build().unwrap();
    assert_eq!(send(&layer, without_address("/")).await.status, 500);
}

#[tokio::test]
async fn an_address_that_an_application_looks_up_itself_may_be_missing() {
    let header = |request: &RequestView<'_>| Some(request.headers.get("x-client")?.to_str().ok()?.to_owned());
    let layer = RateLimitLayer::rules(engine(BY_ADDRESS)).attribute("ip", header).build().unwrap();
    assert_eq!(send(&layer, without_address("/api/x")).await.status, 200);
    let fallback = RateLimitLayer::rules(engine(BY_ADDRESS)).attribute("ip", PeerIpKeyExtractor);
    let layer = fallback.attribute("ip", header).build().unwrap();
    let known = with_header(without_address("/api/x"), "x-client", "192.0.2.1");
    assert_eq!(send(&layer, known).await.status, 200, "the second extractor knows it");
    assert_eq!(send(&layer, without_address("/api/x")).await.status, 500);
}

#[tokio::test]
async fn single_limits_fail_as_well() {
    for layer in [hourly_layer(1).build().unwrap(), hourly_layer(1).key_extractor(smart()).build().unwrap()] {
        let failed = send(&layer, without_address("/")).await;
        assert_eq!((failed.status.as_u16(), failed.header("retry-after")), (500, None));
        assert!(failed.json()["detail"].is_string());
    }
}

fn by_user(if_missing: &str) -> RateLimitLayer {
    let rules = format!(
        "rules: [{{id: per-user, scope: user, if_missing: {if_missing}, strategy: {{fixed_window: {{limit: 1, window: 1h}}}}}}]"
    );
    let user = HeaderKeyExtractor::new(HeaderName::from_static("x-user"));
    RateLimitLayer::rules(engine(&rules)).attribute("user", user).build().unwrap()
}

#[tokio::test]
async fn what_clients_leave_out_is_answered_as_the_rule_says() {
    assert_eq!(send(&by_user("skip"), request()).await.status, 200);

    let denied = send(&by_user("deny"), request()).await;
    assert_eq!((denied.status.as_u16(), denied.header("retry-after")), (429, None));
    assert_eq!(denied.json()["detail"], "The request has no \"user\", which rule \"per-user\" needs.");
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["per-user"]));

    let failed = send(&by_user("error"), request()).await;
    assert_eq!((failed.status.as_u16(), failed.header("retry-after")), (400, None));
    assert_eq!(failed.json()["detail"], "the request has no \"user\", which rule \"per-user\" needs");

    let call = send(&by_user("error"), grpc_call()).await;
    assert_eq!((call.status.as_u16(), call.header("grpc-status")), (200, Some("3")));
    let call = send(&by_user("deny"), grpc_call()).await;
    assert_eq!(call.header("grpc-retry-pushback-ms"), Some("-1"));
    let ann = with_header(request(), "x-user", "ann");
    assert_eq!(send(&by_user("error"), ann).await.status, 200);
}

/// The log names the missing function, and the number of lines grows only logarithmically with traffic. The
/// process is its own, because the first thread to reach an event disables it for all if it has no subscriber.
#[cfg(feature = "tracing")]
#[test]
fn a_missing_address_is_an_error_in_the_log() {
    trypema_testkit::own_process::in_own_process(
        "tower::missing::a_missing_address_is_an_error_in_the_log",
        missing_addresses_are_logged,
    );
}

#[cfg(feature = "tracing")]
#[tokio::main(flavor = "current_thread")]
async fn missing_addresses_are_logged() {
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
    let guard = tracing::subscriber::set_default(subscriber);
    let layer =
        RateLimitLayer::rules(engine(BY_ADDRESS)).attribute("ip", PeerIpKeyExtractor).build().unwrap();
    for _ in 0..50 {
        assert_eq!(send(&layer, without_address("/api/x")).await.status, 500);
    }
    drop(guard);
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    // Logged for the occurrences 1, 2, 4, 8, 16 and 32.
    assert_eq!(text.lines().count(), 6, "{text}");
    assert!(text.contains("ERROR") && text.contains("into_make_service_with_connect_info"), "{text}");
}
