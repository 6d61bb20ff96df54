//! A key of the limiter contains data of another program: it is rejected and left unchanged, and no other key
//! is affected.

use trypema::redis::{RedisFailureKind, RedisLimiter};
use trypema::strategy::Wire;
use trypema::{Check, Limit, RateLimiter, TrypemaError};
use trypema_testkit::blocking::{key, wait_for};
use trypema_testkit::redis::{Control, Server};

use super::limits::{CAPACITY, Claim, for_every_strategy};
use super::load::{CALLERS, Load};
use super::on_both_links;
use super::scene::{AMPLE_DEADLINE, Link, Scene, ann};

on_both_links!(wrongtype, wrongtype_beside_others);

/// Another type, a string that is too short, and one that is as long as a state.
const STRANGERS: [&[&str]; 3] = [
    &["SADD", "$", "member"],
    &["SET", "$", "7"],
    &["SET", "$", "somebody else's words, of which there are as many as in any state of ours"],
];

fn wrongtype(link: Link) {
    let server = Server::start().unwrap();
    let builder = RateLimiter::builder().redis(link.open(&server.url())).redis_deadline(AMPLE_DEADLINE);
    let rl = builder.build().unwrap();
    for stranger in STRANGERS {
        for_every_strategy(&rl, &LeavesAlone { rl: &rl, server: &server, stranger });
    }
}

/// Foreign data under a key's name is left unchanged, and the key works once the data is deleted.
struct LeavesAlone<'a> {
    rl: &'a RateLimiter,
    server: &'a Server,
    stranger: &'a [&'a str],
}

impl Claim for LeavesAlone<'_> {
    fn holds_for<S: Wire>(&self, limiter: &RedisLimiter<S>, limit: &S::Limit)
    where
        Limit: From<S::Limit>,
    {
        let mut control = self.server.control().unwrap();
        let name = format!("trypema:{{ann}}:{}", S::SUFFIX);
        let words: Vec<&str> =
            self.stranger.iter().map(|word| if *word == "$" { &name } else { *word }).collect();
        control.command(&words).unwrap();
        let before = dump(&mut control, &name);

        let ann = ann();
        let refused = |what, error: Option<TrypemaError>| match error {
            Some(TrypemaError::RedisError(failure)) if failure.kind() == RedisFailureKind::Refused => {}
            other => panic!("{} {what} beside {words:?}: {other:?}", S::SUFFIX),
        };
        refused("take", wait_for(limiter.take(&ann, limit, 1)).err());
        refused("peek", wait_for(limiter.peek(&ann, limit, 1)).err());
        refused("usage", wait_for(limiter.usage(&ann, limit)).err());
        refused("take_up_to", wait_for(limiter.take_up_to(&ann, limit, 1)).err());
        refused("reserve", wait_for(limiter.take_with_receipt(&ann, limit, 1)).err());
        refused("refund_units", wait_for(limiter.refund_units(&ann, limit, 1)).err());
        refused("reset", wait_for(limiter.reset(&ann)).err());
        let any = Limit::from(limit.clone());
        let together = ["ben", "ann"].map(|key| Check::new(key, &any, 1));
        refused("take_all", wait_for(self.rl.redis().take_all(&together)).err());
        refused("take_all_with_receipts", wait_for(self.rl.redis().take_all_with_receipts(&together)).err());
        refused("peek_all", wait_for(self.rl.redis().peek_all(&together)).err());

        assert_eq!(dump(&mut control, &name), before, "{} beside {words:?}", S::SUFFIX);
        let usage = wait_for(limiter.usage(&key("ben"), limit)).unwrap();
        assert_eq!(S::core(&usage).remaining(), CAPACITY, "nothing was spent together");
        control.command(&["DEL", &name]).unwrap();
        let decision = wait_for(limiter.take(&ann, limit, 1)).unwrap();
        assert_eq!(S::core(&decision).remaining(), CAPACITY - 1, "{}", S::SUFFIX);
        wait_for(limiter.reset(&ann)).unwrap();
    }
}

/// The value of a key and its time to live.
fn dump(control: &mut Control, name: &str) -> (Vec<u8>, Option<i64>) {
    let value = control.command(&["DUMP", name]).unwrap().bytes().to_vec();
    (value, control.command(&["PTTL", name]).unwrap().integer())
}

/// Callers of a rejected key share script calls with other callers, which are not affected.
fn wrongtype_beside_others(link: Link) {
    let scene = Scene::answering(Server::start().unwrap(), link);
    scene.command(&["SADD", "trypema:{ben}:absolute", "member"]);
    let load = scene.load();
    let mut bens = scene.target.clone();
    bens.key = key("ben");
    let refused = super::load::calls(&bens, 100 * CALLERS);
    assert_eq!(refused.refused, refused.failed(), "{refused:?}");
    assert_eq!(refused.admitted, 0, "{refused:?}");
    load.wait_until_served();
    let counts = load.finish();
    counts.assert_all_admitted();
    assert_eq!(scene.counted(), counts.admitted);

    scene.command(&["DEL", "trypema:{ben}:absolute"]);
    Load::start(&bens).finish().assert_all_admitted();
}
