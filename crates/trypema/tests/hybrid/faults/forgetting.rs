//! Redis loses state: the excess over the limit is at most the number of units it lost.

use trypema::redis::OnFailure;
use trypema_testkit::redis::Server;
use trypema_testkit::subject::HybridStrategy;

use super::scene::{
    A_LEASE, CAPACITY, Scene, WINDOW, call_until_leased, held, most, spend_held, take, take_all,
    wait_until_reached,
};

/// Two instances, one of which holds a lease throughout, and the units admitted so far.
struct Before<S: HybridStrategy> {
    scene: Scene,
    instances: [trypema::RateLimiter; 2],
    limit: S::Limit,
    admitted: u64,
}

impl<S: HybridStrategy> Before<S> {
    fn on(server: Server) -> Self {
        let scene = Scene::on(server);
        let instances = [0, 1].map(|_| scene.instance(OnFailure::Fail));
        let limit = S::limit(CAPACITY, WINDOW);
        let mut admitted = 0;
        for rl in &instances {
            admitted += call_until_leased::<S>(rl, &limit);
        }
        Self { scene, instances, limit, admitted }
    }

    /// Continues after Redis has lost `forgotten` units, and checks the bound on admissions.
    fn goes_on(mut self, forgotten: u64) {
        let [one, other] = &self.instances;
        self.admitted += spend_held::<S>(one, &self.limit);
        self.admitted += take_all::<S>(one, &self.limit);
        // The other instance's lease expires. Its unspent units are refunded to a state that no longer
        // contains them.
        self.scene.clock.advance(A_LEASE);
        self.admitted += take_all::<S>(other, &self.limit);
        self.admitted += take_all::<S>(one, &self.limit);
        let (admitted, allowed) = (self.admitted, most::<S>() + forgotten);
        // The token bucket refills some units while the lease expires.
        let refilled = CAPACITY * A_LEASE.as_millis() as u64 / WINDOW.as_millis() as u64 + 1;
        assert!(
            admitted <= allowed + refilled,
            "{}: {admitted} of {allowed}, {forgotten} forgotten",
            S::NAME
        );
        assert!(admitted >= CAPACITY, "{}: only {admitted}", S::NAME);
        self.scene.pass_windows();
        let again = take_all::<S>(one, &self.limit);
        assert!((CAPACITY..=most::<S>()).contains(&again), "{}: {again} in the next window", S::NAME);
    }
}

#[test]
fn flushall() {
    fn row<S: HybridStrategy>() {
        let before = Before::<S>::on(Server::start().unwrap());
        assert!(held::<S>(&before.instances[1]) > 0);
        let forgotten = before.scene.used::<S>(&before.limit);
        before.scene.server.control().unwrap().command(&["FLUSHALL"]).unwrap();
        before.goes_on(forgotten);
    }

    for_every_leased!(row);
}

#[test]
fn a_server_that_comes_back_empty() {
    fn row<S: HybridStrategy>() {
        let before = Before::<S>::on(Server::start().unwrap());
        let forgotten = before.scene.used::<S>(&before.limit);
        before.scene.server.kill_9().unwrap();
        assert!(take::<S>(&before.instances[0], &before.limit, CAPACITY).is_err(), "{}", S::NAME);
        before.scene.server.restart().unwrap();
        before.instances.iter().for_each(wait_until_reached);
        before.goes_on(forgotten);
    }

    for_every_leased!(row);
}

/// The server restarts from an older snapshot, like a replica that was promoted before it received the last
/// writes.
#[test]
fn a_failover_that_lost_writes() {
    fn row<S: HybridStrategy>() {
        let mut before = Before::<S>::on(Server::start().unwrap());
        before.scene.server.control().unwrap().command(&["SAVE"]).unwrap();
        let kept = before.scene.used::<S>(&before.limit);
        for _ in 0..10 {
            before.admitted +=
                u64::from(take::<S>(&before.instances[0], &before.limit, 1).unwrap().is_allowed());
        }
        let forgotten = before.scene.used::<S>(&before.limit) - kept;
        assert!(forgotten > 0, "{}", S::NAME);
        before.scene.server.kill_9().unwrap();
        before.scene.server.restart().unwrap();
        assert_eq!(before.scene.used::<S>(&before.limit), kept, "{}", S::NAME);
        before.instances.iter().for_each(wait_until_reached);
        before.goes_on(forgotten);
    }

    for_every_leased!(row);
}

/// Redis loses its scripts on a restart, a failover and `SCRIPT FLUSH`. No call is lost.
#[test]
fn forgotten_scripts() {
    fn row<S: HybridStrategy>() {
        let before = Before::<S>::on(Server::start().unwrap());
        before.scene.server.control().unwrap().command(&["SCRIPT", "FLUSH"]).unwrap();
        before.goes_on(0);
    }

    for_every_leased!(row);
}
