//! Receipts: a reservation is refunded once, to its lease or to Redis.

use std::time::Duration;

use trypema::strategy::Absolute;
use trypema::{AbsoluteLimit, RateGroupSizeMs, RateLimit, WindowSizeSeconds};
use trypema_testkit::blocking::{key, wait_for};
use trypema_testkit::subject::HybridStrategy;

use super::scene::{SYNC, Scene, WINDOW, call_until_leased, held, release, take, used};

const CAPACITY: u64 = 100;

#[test]
fn what_came_out_of_a_lease_goes_back_to_it_once() {
    fn goes_back<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit, ann) = (scene.instance(), S::limit(CAPACITY, WINDOW), key("ann"));
        let taken = call_until_leased::<S>(&rl, "ann", &limit);
        let before = held::<S>(&rl, "ann");
        let calls = scene.calls();
        let reserved = wait_for(S::hybrid(&rl).take_with_receipt(&ann, &limit, 2)).unwrap();
        assert!(S::core(&reserved.decision).is_allowed(), "{}", S::NAME);
        assert_eq!((held::<S>(&rl, "ann"), scene.calls()), (before - 2, calls), "{}", S::NAME);
        let receipt = reserved.receipt.unwrap();
        assert_eq!(receipt.units(), 2);
        let refund = |name: &str| wait_for(S::hybrid(&rl).refund(&key(name), &limit, &receipt)).unwrap();
        assert_eq!(refund("bob"), 0, "{}: it is not bob's", S::NAME);
        assert_eq!(refund("ann"), 2, "{}", S::NAME);
        assert_eq!(held::<S>(&rl, "ann"), before, "{}", S::NAME);
        assert_eq!(refund("ann"), 0, "{}: only once", S::NAME);
        assert_eq!(held::<S>(&rl, "ann"), before, "{}", S::NAME);
        release(&rl);
        assert_eq!(used::<S>(&rl, "ann", &limit), taken, "{}", S::NAME);
    }

    for_every_leased!(goes_back);
}

#[test]
fn what_was_leased_for_a_call_goes_back_too() {
    fn goes_back<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit, ann) = (scene.instance(), S::limit(CAPACITY, WINDOW), key("ann"));
        let taken = call_until_leased::<S>(&rl, "ann", &limit);
        let cost = held::<S>(&rl, "ann") + 10;
        let reserved = wait_for(S::hybrid(&rl).take_with_receipt(&ann, &limit, cost)).unwrap();
        assert!(S::core(&reserved.decision).is_allowed());
        let receipt = reserved.receipt.unwrap();
        assert_eq!(receipt.units(), cost, "{}", S::NAME);
        assert_eq!(wait_for(S::hybrid(&rl).refund(&ann, &limit, &receipt)).unwrap(), cost, "{}", S::NAME);
        release(&rl);
        assert_eq!(used::<S>(&rl, "ann", &limit), taken, "{}", S::NAME);
    }

    for_every_leased!(goes_back);
}

#[test]
fn a_receipt_outlives_its_lease() {
    fn outlives<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit, ann) = (scene.instance(), S::limit(CAPACITY, WINDOW), key("ann"));
        let taken = call_until_leased::<S>(&rl, "ann", &limit);
        let receipt = wait_for(S::hybrid(&rl).take_with_receipt(&ann, &limit, 1)).unwrap().receipt.unwrap();
        scene.clock.advance(SYNC * 2);
        assert_eq!(held::<S>(&rl, "ann"), 0, "{}: its lease is over", S::NAME);
        assert_eq!(wait_for(S::hybrid(&rl).refund(&ann, &limit, &receipt)).unwrap(), 1, "{}", S::NAME);
        release(&rl);
        // A bucket refills meanwhile.
        let used = used::<S>(&rl, "ann", &limit);
        assert!(used <= taken && used + 1 >= taken, "{}: {used} used, {taken} taken", S::NAME);
    }

    for_every_leased!(outlives);
}

#[test]
fn a_cold_reservation_is_that_of_redis() {
    fn is_plain<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit, ann) = (scene.instance(), S::limit(CAPACITY, WINDOW), key("ann"));
        let receipt = wait_for(S::hybrid(&rl).take_with_receipt(&ann, &limit, 7)).unwrap().receipt.unwrap();
        assert_eq!((receipt.units(), used::<S>(&rl, "ann", &limit)), (7, 7), "{}", S::NAME);
        let refund = || wait_for(S::hybrid(&rl).refund(&ann, &limit, &receipt)).unwrap();
        assert_eq!((refund(), refund()), (7, 0), "{}", S::NAME);
        assert_eq!(used::<S>(&rl, "ann", &limit), 0, "{}", S::NAME);
        for cost in [0, 3 * CAPACITY] {
            let nothing = wait_for(S::hybrid(&rl).take_with_receipt(&ann, &limit, cost)).unwrap();
            assert!(nothing.receipt.is_none(), "{} cost {cost}", S::NAME);
        }
    }

    for_every_leased!(is_plain);
}

#[test]
fn a_reset_forgets_all_and_voids_receipts() {
    fn forgets<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit, ann) = (scene.instance(), S::limit(CAPACITY, WINDOW), key("ann"));
        call_until_leased::<S>(&rl, "ann", &limit);
        let receipt = wait_for(S::hybrid(&rl).take_with_receipt(&ann, &limit, 1)).unwrap().receipt.unwrap();
        assert!(wait_for(S::hybrid(&rl).reset(&ann)).unwrap(), "{}", S::NAME);
        assert_eq!(held::<S>(&rl, "ann"), 0, "{}", S::NAME);
        assert_eq!(used::<S>(&rl, "ann", &limit), 0, "{}", S::NAME);
        assert!(!wait_for(S::hybrid(&rl).reset(&ann)).unwrap(), "{}: there is nothing left", S::NAME);
        assert!(take::<S>(&rl, "ann", &limit, CAPACITY).is_allowed(), "{}", S::NAME);
        assert_eq!(wait_for(S::hybrid(&rl).refund(&ann, &limit, &receipt)).unwrap(), 0, "{}", S::NAME);
        release(&rl);
        assert_eq!(used::<S>(&rl, "ann", &limit), CAPACITY, "{}: nothing was given back", S::NAME);
    }

    for_every_leased!(forgets);
}

/// A reset voids earlier leases, whichever instance holds them and whenever it refunds them.
#[test]
fn what_was_leased_before_a_reset_is_not_given_back_after_it() {
    fn is_void<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, other, limit) = (scene.instance(), scene.instance(), S::limit(CAPACITY, WINDOW));
        call_until_leased::<S>(&other, "ann", &limit);
        assert!(held::<S>(&other, "ann") > 0);
        assert!(wait_for(S::hybrid(&rl).reset(&key("ann"))).unwrap());
        assert!(take::<S>(&rl, "ann", &limit, CAPACITY).is_allowed(), "{}", S::NAME);
        release(&other);
        assert_eq!(used::<S>(&rl, "ann", &limit), CAPACITY, "{}", S::NAME);
    }

    for_every_leased!(is_void);
}

#[test]
fn units_without_a_receipt_are_given_back_in_redis() {
    fn gives_back<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit, ann) = (scene.instance(), S::limit(CAPACITY, WINDOW), key("ann"));
        assert!(take::<S>(&rl, "ann", &limit, 10).is_allowed());
        assert_eq!(wait_for(S::hybrid(&rl).refund_units(&ann, &limit, 4)).unwrap(), 4, "{}", S::NAME);
        assert_eq!(used::<S>(&rl, "ann", &limit), 6, "{}", S::NAME);
    }

    for_every_leased!(gives_back);
}

#[test]
fn as_much_as_fits_is_taken_of_what_is_held_and_of_the_rest() {
    fn takes<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit, ann) = (scene.instance(), S::limit(CAPACITY, WINDOW), key("ann"));
        let up_to = |cost| wait_for(S::hybrid(&rl).take_up_to(&ann, &limit, cost)).unwrap();
        assert_eq!(up_to(5).units, 5, "{}: cold", S::NAME);
        let mut taken = 5 + call_until_leased::<S>(&rl, "ann", &limit);
        let (before, calls) = (held::<S>(&rl, "ann"), scene.calls());
        assert_eq!(up_to(before).units, before, "{}", S::NAME);
        assert_eq!(scene.calls(), calls, "{}: what is held needs no Redis", S::NAME);
        taken += before;
        call_until_leased::<S>(&rl, "ann", &limit);
        taken += 1;
        let more = held::<S>(&rl, "ann") + 3;
        let granted = up_to(more);
        assert!(granted.units == more && S::core(&granted.decision).is_allowed(), "{}", S::NAME);
        taken += more;
        release(&rl);
        assert_eq!(used::<S>(&rl, "ann", &limit), taken, "{}", S::NAME);
        let rest = up_to(10 * CAPACITY);
        assert_eq!(rest.units, CAPACITY - taken, "{}", S::NAME);
        assert!(S::core(&rest.decision).is_allowed(), "{}: the decision is that of what was taken", S::NAME);
        assert_eq!(up_to(1).units, 0, "{}", S::NAME);
    }

    for_every_exact!(takes);
}

/// Units that are older than the window no longer count, so a late refund must not be deducted from units
/// that others spent at nearly the same time.
#[test]
fn a_receipt_that_is_older_than_its_window_gives_nothing_back() {
    let scene = Scene::start();
    let (rl, other, ann) = (scene.instance(), scene.instance(), key("ann"));
    let (rate, window) = (RateLimit::try_from(10.0).unwrap(), WindowSizeSeconds::try_from(10).unwrap());
    let limit = AbsoluteLimit::new(rate, window, RateGroupSizeMs::try_from(1_000).unwrap());
    scene.clock.advance(Duration::from_millis(850));
    call_until_leased::<Absolute>(&rl, "ann", &limit);
    let reserve =
        |_| wait_for(rl.hybrid().absolute().take_with_receipt(&ann, &limit, 1)).unwrap().receipt.unwrap();
    let receipts: Vec<_> = (0..30).map(reserve).collect();
    scene.clock.advance(Duration::from_millis(400));
    release(&rl);
    assert!(wait_for(other.redis().absolute().take(&ann, &limit, 40)).unwrap().is_allowed());
    scene.clock.advance(Duration::from_millis(9_900));
    for receipt in &receipts {
        assert_eq!(wait_for(rl.hybrid().absolute().refund(&ann, &limit, receipt)).unwrap(), 0);
    }
    release(&rl);
    let rest = wait_for(other.redis().absolute().take_up_to(&ann, &limit, 1_000)).unwrap().units;
    assert!(rest <= 60, "40 and {rest} of 100 within a window");
}
