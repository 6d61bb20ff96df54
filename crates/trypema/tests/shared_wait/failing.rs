//! Redis becomes unreachable while a caller waits.

use std::sync::Arc;
use std::time::Duration;

use trypema::redis::OnFailure;
use trypema::strategy::FixedWindow;
use trypema::{RateLimiter, TrypemaError, WaitError};
use trypema_testkit::blocking::wait_for;
use trypema_testkit::redis::wait_until;
use trypema_testkit::subject::HybridStrategy;

use super::scene::{HOUR, Provider, Scene, WINDOW, Waited};

/// Long enough for a busy machine, short enough to wait for.
const DEADLINE: Duration = Duration::from_secs(2);

/// A sleeping waiter whose Redis was killed meanwhile.
struct Orphan<P> {
    scene: Scene,
    rl: Arc<RateLimiter>,
    waiter: tokio::task::JoinHandle<Waited>,
    provider: std::marker::PhantomData<P>,
}

impl<P: Provider> Orphan<P> {
    fn with(on_failure: OnFailure) -> Self {
        let scene = Scene::start();
        let builder = scene.building().redis_deadline(DEADLINE).on_redis_failure(on_failure);
        let rl = Arc::new(builder.build().unwrap());
        let limit = FixedWindow::limit(4, WINDOW);
        scene.use_up::<P, FixedWindow>(&rl, &limit);
        let waiter = P::spawn::<FixedWindow>(&rl, &limit, 1, HOUR);
        wait_for(scene.asleep(scene.now() + HOUR));
        scene.server.kill_9().unwrap();
        Self { scene, rl, waiter, provider: std::marker::PhantomData }
    }

    /// Lets the waiter try again. Returns the result of its wait.
    fn ends(self) -> Waited {
        wait_for(self.scene.run_until(|| self.waiter.is_finished(), |_| {}));
        wait_for(self.waiter).unwrap()
    }
}

/// A failure during a wait follows the policy, as for a take.
pub(crate) fn a_failure_while_waiting_is_what_the_policy_says<P: Provider>() {
    let failed = Orphan::<P>::with(OnFailure::Fail).ends();
    assert!(matches!(failed, Err(WaitError::Store(TrypemaError::RedisError(_)))), "{failed:?}");
    let allowed = Orphan::<P>::with(OnFailure::Allow).ends().unwrap();
    assert!(allowed.is_allowed() && allowed.is_substitute());
    let instances = std::num::NonZeroU32::MIN;
    let counted_here = Orphan::<P>::with(OnFailure::Local { instances }).ends().unwrap();
    assert!(counted_here.is_allowed() && counted_here.is_substitute());
}

/// If the policy denies, the wait continues, and the caller is admitted once Redis is reachable again.
pub(crate) fn a_wait_goes_on_while_the_policy_denies<P: Provider>() {
    let orphan = Orphan::<P>::with(OnFailure::Deny);
    let start = orphan.scene.now();
    wait_for(async {
        // Three denials, a second apart.
        for _ in 0..3 {
            let at = orphan.scene.asleep(start + HOUR).await;
            orphan.scene.clock.set(at);
        }
        orphan.scene.asleep(start + HOUR).await;
    });
    assert!(!orphan.waiter.is_finished());
    orphan.scene.server.restart().unwrap();
    let probe = || {
        wait_for(orphan.rl.redis().fixed_window().reset(&trypema_testkit::blocking::key("nobody"))).is_ok()
    };
    wait_until("Redis to be asked again", probe).unwrap();
    let decision = orphan.ends().unwrap();
    assert!(decision.is_allowed() && !decision.is_substitute(), "{decision:?}");
}
