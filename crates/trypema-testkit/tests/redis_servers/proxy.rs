//! Each fault of the proxy does its harm and no other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use trypema::clock::{Clock, SystemClock};
use trypema_testkit::redis::{Control, FaultProxy, Server, wait_until};

use super::SILENCE;

const DELAY: Duration = Duration::from_millis(200);

struct Scene {
    server: Server,
    proxy: FaultProxy,
    /// Connected through the proxy before any fault.
    client: Control,
}

impl Scene {
    fn start() -> Self {
        let server = Server::start().unwrap();
        let proxy = FaultProxy::start(server.addr()).unwrap();
        let mut client = Control::open(&proxy.url()).unwrap();
        assert_eq!(client.command(&["INCR", "key"]).unwrap().integer(), Some(1));
        Self { server, proxy, client }
    }

    /// Counts on, and hears nothing of it.
    fn count_unanswered(&mut self) {
        self.client.set_timeout(Some(SILENCE)).unwrap();
        let error = self.client.command(&["INCR", "key"]).unwrap_err();
        assert_eq!(self.proxy.open(), 1, "not closed: {error}");
    }

    /// Waits until the server has counted to `count`, asked directly.
    fn wait_until_counted(&self, count: i64) {
        let mut direct = self.server.control().unwrap();
        let counted = || direct.command(&["GET", "key"]).unwrap().integer() == Some(count);
        wait_until("the request to arrive", counted).unwrap();
    }
}

#[test]
fn without_a_fault_everything_passes_and_is_counted() {
    let mut scene = Scene::start();
    let long = "x".repeat(1 << 20);
    scene.client.command(&["SET", "long", &long]).unwrap();
    assert_eq!(scene.client.command(&["GET", "long"]).unwrap().text(), long);
    assert_eq!((scene.proxy.accepted(), scene.proxy.open()), (1, 1));
    assert!(scene.proxy.bytes_up() > 1 << 20);
    assert!(scene.proxy.bytes_down() > 1 << 20);
}

#[test]
fn delayed_replies_are_released() {
    let Scene { server: _server, proxy, mut client } = Scene::start();
    // Longer than the test may take.
    proxy.delay(Duration::from_secs(600));
    for (count, release) in [(2, FaultProxy::release as fn(&FaultProxy)), (3, FaultProxy::heal)] {
        let is_answered = AtomicBool::new(false);
        thread::scope(|scope| {
            // The reply may reach the proxy only after a release.
            let releasing = scope.spawn(|| {
                wait_until("the reply", || {
                    release(&proxy);
                    is_answered.load(Ordering::Acquire)
                })
            });
            assert_eq!(client.command(&["INCR", "key"]).unwrap().integer(), Some(count));
            is_answered.store(true, Ordering::Release);
            releasing.join().unwrap().unwrap();
        });
    }
}

#[test]
fn delayed_replies_come_later_and_in_order() {
    let mut scene = Scene::start();
    scene.proxy.delay(DELAY);
    let start = SystemClock.now();
    assert_eq!(scene.client.command(&["INCR", "key"]).unwrap().integer(), Some(2));
    assert!(SystemClock.now() >= start + DELAY);
    scene.proxy.heal();
    assert_eq!(scene.client.command(&["INCR", "key"]).unwrap().integer(), Some(3));
}

#[test]
fn cut_ends_what_is_open_and_nothing_else() {
    let mut scene = Scene::start();
    scene.proxy.cut();
    assert!(scene.client.command(&["INCR", "key"]).is_err());
    let mut next = Control::open(&scene.proxy.url()).unwrap();
    assert_eq!(next.command(&["INCR", "key"]).unwrap().integer(), Some(2));
    assert_eq!(scene.proxy.accepted(), 2);
}

#[test]
fn refused_connections_end_before_they_begin() {
    let mut scene = Scene::start();
    scene.proxy.refuse();
    assert!(scene.client.command(&["PING"]).is_err());
    let refused = Control::open(&scene.proxy.url()).and_then(|mut client| client.command(&["PING"]));
    assert!(refused.is_err());
    scene.proxy.heal();
    let mut next = Control::open(&scene.proxy.url()).unwrap();
    assert_eq!(next.command(&["PING"]).unwrap().text(), "PONG");
}

#[test]
fn dropped_replies_belong_to_requests_that_were_carried_out() {
    let mut scene = Scene::start();
    scene.proxy.drop_replies();
    scene.count_unanswered();
    scene.wait_until_counted(2);
    scene.proxy.heal();
    assert_eq!(scene.client.command(&["INCR", "key"]).unwrap().integer(), Some(3));
}

#[test]
fn a_cut_in_place_of_the_reply_comes_after_the_request_was_carried_out() {
    let mut scene = Scene::start();
    scene.proxy.cut_on_reply();
    let cut = scene.client.command(&["INCR", "key"]).unwrap_err().to_string();
    assert!(cut.contains("closed") || cut.contains("reset"), "{cut}");
    scene.wait_until_counted(2);
}

#[test]
fn a_frozen_connection_holds_the_request_until_healed() {
    let mut scene = Scene::start();
    scene.proxy.freeze();
    scene.count_unanswered();
    let mut direct = scene.server.control().unwrap();
    assert_eq!(direct.command(&["GET", "key"]).unwrap().integer(), Some(1), "nothing has passed");
    scene.proxy.heal();
    scene.wait_until_counted(2);
}
