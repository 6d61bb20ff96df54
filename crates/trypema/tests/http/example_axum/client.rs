//! The example on a free port, and a client that parses its responses independently of the library.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sfv::{BareItem, Item, ListEntry, Parser};
use tokio::runtime::Runtime;
use trypema::RateLimiter;
use trypema::clock::ManualClock;
use trypema::rules::Engine;

pub(crate) struct Api {
    runtime: Runtime,
    address: SocketAddr,
    clock: Arc<ManualClock>,
    engine: Arc<Engine>,
}

impl Api {
    pub(crate) fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let clock = Arc::new(ManualClock::default());
        let engine =
            super::app::engine(RateLimiter::builder().clock(clock.clone()).build().unwrap()).unwrap();
        let app = super::app::app(Arc::clone(&engine)).unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        runtime.spawn(async move { axum::serve(listener, service).await });
        Self { runtime, address, clock, engine }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn advance(&self, milliseconds: u64) {
        self.clock.advance(Duration::from_millis(milliseconds));
    }

    pub(crate) fn wait<T, E: std::fmt::Debug>(&self, future: impl Future<Output = Result<T, E>>) -> T {
        self.runtime.block_on(future).unwrap()
    }

    pub(crate) fn get(&self, path: &str, key: &str) -> Answer {
        self.call(ureq::http::Method::GET, path, key)
    }

    pub(crate) fn post(&self, path: &str, key: &str) -> Answer {
        self.call(ureq::http::Method::POST, path, key)
    }

    fn call(&self, method: ureq::http::Method, path: &str, key: &str) -> Answer {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let mut request =
            ureq::http::Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        if !key.is_empty() {
            request = request.header("x-api-key", key);
        }
        let mut response = agent.run(request.body(()).unwrap()).unwrap();
        let headers = response.headers().iter();
        let headers =
            headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
        Answer {
            status: response.status().as_u16(),
            headers,
            body: response.body_mut().read_to_string().unwrap(),
        }
    }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    /// The value of a header that may appear at most once.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let values: Vec<&str> =
            self.headers.iter().filter(|(given, _)| given == name).map(|(_, value)| value.as_str()).collect();
        assert!(values.len() <= 1, "{name}: {values:?}");
        values.first().copied()
    }

    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.header("retry-after").map(|seconds| seconds.parse().unwrap())
    }

    /// The quota and the window in seconds of a policy.
    pub(crate) fn limit_of(&self, policy: &str) -> (i64, i64) {
        let item = self.item("ratelimit-policy", policy);
        (integer(&item, "q"), integer(&item, "w"))
    }

    /// The remaining units of a policy, and its reset time in seconds.
    pub(crate) fn left_of(&self, policy: &str) -> (i64, i64) {
        let item = self.item("ratelimit", policy);
        (integer(&item, "r"), integer(&item, "t"))
    }

    fn item(&self, header: &str, policy: &str) -> Item {
        let text = self.header(header).unwrap_or_else(|| panic!("no {header}: {:?}", self.headers));
        let list = Parser::new(text).parse::<sfv::List>().unwrap();
        let is_policy =
            |item: &Item| matches!(&item.bare_item, BareItem::String(name) if name.as_str() == policy);
        let mut items = list.into_iter().filter_map(|entry| match entry {
            ListEntry::Item(item) => Some(item),
            ListEntry::InnerList(_) => None,
        });
        items.find(is_policy).unwrap_or_else(|| panic!("{header} has no {policy}: {text}"))
    }

    /// Asserts a 429 by this policy with a wait of `seconds`, in the status, the headers and the body.
    pub(crate) fn assert_denied(&self, policy: &str, seconds: u64) {
        assert_eq!((self.status, self.retry_after()), (429, Some(seconds)));
        assert_eq!(self.left_of(policy).1, i64::try_from(seconds).unwrap());
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(problem["status"], 429);
        assert_eq!(problem["violated-policies"], serde_json::json!([policy]));
        assert_eq!(problem["retry_after"], seconds);
        assert!(problem["title"].as_str().is_some_and(|title| !title.is_empty()));
    }
}

fn integer(item: &Item, name: &str) -> i64 {
    let value = item.params.iter().find(|(key, _)| key.as_str() == name).map(|(_, value)| value);
    let Some(BareItem::Integer(number)) = value else { panic!("no {name} in {item:?}") };
    i64::from(*number)
}
