//! The proxy that harms what passes works before PostgreSQL too.

use std::time::Duration;

use trypema::clock::{Clock, SystemClock};
use trypema_testkit::postgres::Server;
use trypema_testkit::redis::FaultProxy;

use super::session::{Session, ask};

const DELAY: Duration = Duration::from_millis(200);

struct Scene {
    /// Alive for as long as the proxy stands before it.
    _server: Server,
    proxy: FaultProxy,
    url: String,
    /// Connected through the proxy before any fault.
    session: Session,
}

impl Scene {
    fn start() -> Self {
        let server = Server::start().unwrap();
        let proxy = FaultProxy::start(server.addr()).unwrap();
        let url = server.url().replace(&server.addr().to_string(), &proxy.addr().to_string());
        let mut session = Session::open(&url);
        assert_eq!(session.ask("SELECT 1").unwrap(), "1");
        Self { _server: server, proxy, url, session }
    }
}

#[test]
fn delayed_answers_come_later() {
    let mut scene = Scene::start();
    scene.proxy.delay(DELAY);
    let start = SystemClock.now();
    assert_eq!(scene.session.ask("SELECT 2").unwrap(), "2");
    assert!(SystemClock.now() >= start + DELAY);
}

#[test]
fn a_cut_ends_open_sessions_only() {
    let mut scene = Scene::start();
    scene.proxy.cut();
    assert!(scene.session.ask("SELECT 2").is_none());
    assert_eq!(ask(&scene.url, "SELECT 3").unwrap(), "3");
}

#[test]
fn refused_sessions_fail_until_healed() {
    let mut scene = Scene::start();
    scene.proxy.refuse();
    assert!(scene.session.ask("SELECT 2").is_none());
    let refused = ask(&scene.url, "SELECT 3").unwrap_err();
    assert!(refused.contains("connection to server"), "{refused}");
    scene.proxy.heal();
    assert_eq!(ask(&scene.url, "SELECT 4").unwrap(), "4");
}
