//! The keys that requests are counted by.

use std::net::IpAddr;

use http::HeaderName;
use trypema::http::{ForwardingHeader, TrustedProxies};
use trypema::tower::{
    ExtensionKeyExtractor, GlobalKeyExtractor, HeaderKeyExtractor, Key, KeyExtractor, PathKeyExtractor,
    PeerIpKeyExtractor, RequestView, SmartIpKeyExtractor,
};

use super::scene::{hourly_layer, request, request_from, send, statuses, to, with_header};

fn key_of(extractor: &dyn KeyExtractor, request: &http::Request<()>) -> Option<String> {
    extractor.extract(&RequestView::of(request)).map(|key: Key<'_>| key.as_str().to_owned())
}

#[test]
fn a_peer_is_known_by_its_address() {
    let key = |request: &http::Request<()>| key_of(&PeerIpKeyExtractor, request);
    assert_eq!(key(&request_from("192.0.2.1")).as_deref(), Some("192.0.2.1"));
    assert_eq!(key(&request_from("::ffff:192.0.2.1")).as_deref(), Some("192.0.2.1"));
    assert_eq!(key(&request_from("2001:db8:1:2:3:4:5:6")).as_deref(), Some("2001:db8:1:2::/64"));
    let mut bare = http::Request::new(());
    assert_eq!(key(&bare), None);
    bare.extensions_mut().insert::<IpAddr>("192.0.2.7".parse().unwrap());
    assert_eq!(key(&bare).as_deref(), Some("192.0.2.7"));
}

#[cfg(feature = "axum")]
#[test]
fn a_peer_is_known_by_what_axum_says() {
    let address: std::net::SocketAddr = "192.0.2.9:1".parse().unwrap();
    let mut request = http::Request::new(());
    request.extensions_mut().insert(axum::extract::ConnectInfo(address));
    assert_eq!(key_of(&PeerIpKeyExtractor, &request).as_deref(), Some("192.0.2.9"));
}

#[test]
fn a_client_is_known_by_what_trusted_proxies_say() {
    let proxies = || TrustedProxies::new(["10.0.0.0/8".parse().unwrap()]);
    let client = SmartIpKeyExtractor::new(proxies());
    let forwarded = |from, value| with_header(request_from(from), "x-forwarded-for", value);
    let key = |from, value| key_of(&client, &forwarded(from, value));
    assert_eq!(key("10.0.0.1", "6.6.6.6, 203.0.113.9").as_deref(), Some("203.0.113.9"));
    assert_eq!(key("10.0.0.1", "2001:db8:1:2:3::4").as_deref(), Some("2001:db8:1:2::/64"));
    assert_eq!(key("198.51.100.7", "203.0.113.9").as_deref(), Some("198.51.100.7"));
    assert_eq!(key_of(&client, &http::Request::new(())), None);

    let client = SmartIpKeyExtractor::new(proxies().with_header(ForwardingHeader::Forwarded));
    let request = with_header(forwarded("10.0.0.1", "6.6.6.6"), "forwarded", "for=203.0.113.9");
    assert_eq!(key_of(&client, &request).as_deref(), Some("203.0.113.9"));
}

/// A client cannot get a second key by forging headers, neither directly nor through a proxy.
#[tokio::test]
async fn lies_about_addresses_do_not_help() {
    let client = SmartIpKeyExtractor::new(TrustedProxies::new(["10.0.0.0/8".parse().unwrap()]));
    let layer = hourly_layer(1).key_extractor(client).build().unwrap();
    let direct = |lie: &str| with_header(request_from("198.51.100.7"), "x-forwarded-for", lie);
    assert_eq!(statuses(&layer, [direct("1.1.1.1"), direct("2.2.2.2")]).await, [200, 429]);
    let proxied =
        |lie: &str| with_header(request_from("10.0.0.1"), "x-forwarded-for", &format!("{lie}, 203.0.113.9"));
    assert_eq!(statuses(&layer, [proxied("1.1.1.1"), proxied("2.2.2.2")]).await, [200, 429]);
}

#[test]
fn a_header_is_its_first_value() {
    let api_key = HeaderKeyExtractor::new(HeaderName::from_static("x-api-key"));
    let mut request = with_header(request(), "x-api-key", "k1");
    request.headers_mut().append("x-api-key", "k2".parse().unwrap());
    assert_eq!(key_of(&api_key, &request).as_deref(), Some("k1"));
    // A value that is not text still yields a key. Without a key, rules would not apply to the client.
    request.headers_mut().insert("x-api-key", http::HeaderValue::from_bytes(b"\xff").unwrap());
    assert_eq!(key_of(&api_key, &request).as_deref(), Some("\u{fffd}"));
    assert_eq!(key_of(&api_key, &http::Request::new(())), None);
}

#[test]
fn a_path_has_no_query() {
    assert_eq!(key_of(&PathKeyExtractor, &to(request(), "/a/b?c=d")).as_deref(), Some("/a/b"));
}

#[test]
fn an_extension_is_its_text() {
    #[derive(Clone)]
    struct User(&'static str);

    impl AsRef<str> for User {
        fn as_ref(&self) -> &str {
            self.0
        }
    }

    let mut request = request();
    let user = ExtensionKeyExtractor::<User>::new();
    assert_eq!(key_of(&user, &request), None);
    request.extensions_mut().insert(User("ann"));
    assert_eq!(key_of(&user, &request).as_deref(), Some("ann"));
}

#[tokio::test]
async fn each_key_has_a_limit_of_its_own() {
    let layer = hourly_layer(1).build().unwrap();
    let from = ["192.0.2.1", "192.0.2.2", "192.0.2.1", "2001:db8::1", "2001:db8::2"];
    assert_eq!(statuses(&layer, from.map(request_from)).await, [200, 200, 429, 200, 429]);

    let layer = hourly_layer(1).key_extractor(GlobalKeyExtractor).build().unwrap();
    assert_eq!(statuses(&layer, from.map(request_from)).await, [200, 429, 429, 429, 429]);

    let query = |request: &RequestView<'_>| request.uri.query().map(str::to_owned);
    let layer = hourly_layer(1).key_extractor(query).build().unwrap();
    let requests = ["/?a", "/?b", "/?a"].map(|path| to(request(), path));
    assert_eq!(statuses(&layer, requests).await, [200, 200, 429]);
}

/// A missing key is a configuration error of the server: the response is a server error and names the missing
/// setting.
#[tokio::test]
async fn a_request_without_a_key_is_the_servers_fault() {
    let api_key = HeaderKeyExtractor::new(HeaderName::from_static("x-api-key"));
    let layers = [
        (hourly_layer(1).build().unwrap(), "into_make_service_with_connect_info"),
        (
            hourly_layer(1).key_extractor(api_key).build().unwrap(),
            "The header that identifies the client is missing.",
        ),
        (
            hourly_layer(1).key_extractor(|_: &RequestView<'_>| None).build().unwrap(),
            "found no key in this request.",
        ),
    ];
    for (layer, advice) in layers {
        let answer = send(&layer, http::Request::new(())).await;
        assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (500, None));
        let problem = answer.json();
        let says_what_to_do = problem["detail"].as_str().is_some_and(|detail| detail.contains(advice));
        assert_eq!(says_what_to_do, cfg!(debug_assertions), "{problem}");
    }
}
