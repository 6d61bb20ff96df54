//! The middleware in front of an axum router that listens on a port, called by a real client.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::{get, post};
use trypema::http::HeaderStyle;
use trypema::tower::{RateLimitLayer, SmartIpKeyExtractor};

use super::scene::{guesses, hourly_layer};

/// A server that stops when this value is dropped.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Served {
    pub(crate) async fn start(router: Router) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let task = tokio::spawn(async move { axum::serve(listener, service).await.unwrap() });
        Self { address, task }
    }

    /// Sends a request with a blocking client, on a thread that may block.
    async fn call(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> http::Response<String> {
        self.send(method, path, headers, "").await
    }

    /// Sends a request with a body.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<String>,
    ) -> http::Response<String> {
        let url = format!("http://{}{path}", self.address);
        let mut request = http::Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body.into()).unwrap();
        let call = move || {
            let agent = ureq::Agent::from(ureq::Agent::config_builder().http_status_as_error(false).build());
            let response = agent.run(request).unwrap();
            let (parts, mut body) = response.into_parts();
            http::Response::from_parts(parts, body.read_to_string().unwrap())
        };
        tokio::task::spawn_blocking(call).await.unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn text<'r>(response: &'r http::Response<String>, header: &str) -> &'r str {
    response.headers()[header].to_str().unwrap()
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn a_client_is_counted_by_its_address() {
    let layer = hourly_layer(2).use_headers(HeaderStyle::Standard).build().unwrap();
    let served = Served::start(Router::new().route("/", get(|| async { "hello" })).layer(layer)).await;
    for left in [1, 0] {
        let answer = served.call("GET", "/", &[]).await;
        assert_eq!((answer.status().as_u16(), answer.body().as_str()), (200, "hello"));
        assert_eq!(text(&answer, "ratelimit"), format!("\"hourly\";r={left};t=2000"));
    }
    // The peer is not a trusted proxy, so its header is ignored.
    let denied = served.call("GET", "/", &[("x-forwarded-for", "192.0.2.77")]).await;
    assert_eq!((denied.status().as_u16(), text(&denied, "retry-after")), (429, "2000"));
    assert_eq!(text(&denied, "content-type"), "application/problem+json");
    assert_eq!(text(&denied, "content-length"), denied.body().len().to_string());
    let problem: serde_json::Value = serde_json::from_str(denied.body()).unwrap();
    assert_eq!(problem["violated-policies"], serde_json::json!(["hourly"]));
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn behind_a_trusted_proxy_clients_are_counted_one_by_one() {
    let proxies = trypema::http::TrustedProxies::new(["127.0.0.0/8".parse().unwrap()]);
    let layer = hourly_layer(1).key_extractor(SmartIpKeyExtractor::new(proxies)).build().unwrap();
    let served = Served::start(Router::new().route("/", get(|| async { "hello" })).layer(layer)).await;
    for (client, expected) in [
        ("203.0.113.1", 200),
        ("203.0.113.2", 200),
        ("6.6.6.6, 203.0.113.1", 429),
        ("2001:db8::1", 200),
        ("2001:db8::2", 429),
    ] {
        let answer = served.call("GET", "/", &[("x-forwarded-for", client)]).await;
        assert_eq!(answer.status(), expected, "{client}");
    }
}

#[cfg(not(feature = "axum"))]
#[tokio::test]
async fn without_the_feature_axum_its_addresses_are_unknown() {
    let layer = hourly_layer(1).build().unwrap();
    let served = Served::start(Router::new().route("/", get(|| async { "hello" })).layer(layer)).await;
    let answer = served.call("GET", "/", &[]).await;
    assert_eq!(answer.status(), 500);
}

/// Right passwords never count. The first two wrong ones have no effect, and the third blocks the client.
#[cfg(feature = "axum")]
#[tokio::test]
async fn a_login_is_guarded_against_guessing() {
    async fn log_in(headers: axum::http::HeaderMap) -> axum::http::StatusCode {
        match headers.get("x-password").is_some_and(|password| password == "secret") {
            true => axum::http::StatusCode::OK,
            false => axum::http::StatusCode::UNAUTHORIZED,
        }
    }
    let guard = RateLimitLayer::builder().limit(guesses()).charge_if(|response| response.status == 401);
    let login = post(log_in).layer(guard.build().unwrap());
    let served =
        Served::start(Router::new().route("/login", login).route("/", get(|| async { "hello" }))).await;
    let (right, wrong) = ([("x-password", "secret")], [("x-password", "1234")]);
    for (attempt, expected) in
        [(wrong, 401), (right, 200), (wrong, 401), (right, 200), (wrong, 401), (right, 429), (wrong, 429)]
    {
        assert_eq!(served.call("POST", "/login", &attempt).await.status(), expected);
    }
    assert_eq!(served.call("GET", "/", &[]).await.status(), 200, "the rest goes on");
}

/// A handler can return an [`ErrorResponse`](trypema::http::ErrorResponse) directly.
#[cfg(feature = "axum")]
#[tokio::test]
async fn a_handler_returns_an_error_response() {
    use trypema::http::{ErrorCode, ErrorResponse};

    async fn limited() -> Result<&'static str, ErrorResponse> {
        Err(ErrorResponse::new(ErrorCode::TooManyAttempts).with_retry_after(30))
    }
    let served = Served::start(Router::new().route("/", get(limited))).await;
    let answer = served.call("GET", "/", &[]).await;
    assert_eq!((answer.status().as_u16(), text(&answer, "retry-after")), (429, "30"));
    assert!(answer.body().starts_with(r#"{"code":"TooManyAttempts""#), "{}", answer.body());
}
