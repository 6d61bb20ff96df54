//! The verbs, one after the other.

use std::time::Duration;

use trypema::TrypemaError;
use trypema::observer::ReservationChange;
use trypema::rules::{OnDrop, Request, SettledStatus, Settlement};
use trypema_testkit::blocking::wait_for;

use super::{Scene, a_minute, on_every_provider};

const TOKENS: &str = "
units: [tokens]
rules:
  - {id: tokens, scope: user, unit: tokens, strategy: {absolute: {limit: 1000, window: 1h}}}
  - {id: bucket, scope: user, unit: tokens, strategy: {token_bucket: {limit: 1000, window: 1h}}}
  - {id: fixed, scope: global, unit: tokens, strategy: {fixed_window: {limit: 1000, window: 1h}}}
  - {id: sliding, scope: user, unit: tokens, strategy: {sliding_window: {limit: 1000, window: 1h}}}
  - {id: requests, scope: user, strategy: {suppressed: {limit: 10, window: 1h}}}
";

const OF_TOKENS: [&str; 4] = ["tokens", "bucket", "fixed", "sliding"];

/// Units at one counter: reserved, counted, refunded.
type Units = (u64, u64, u64);

/// Returns what each counter says of its settlement.
fn told(settlement: &Settlement) -> Vec<(&str, Option<Units>)> {
    let told = |status: &SettledStatus| match status {
        SettledStatus::Settled { reserved, counted, refunded } => Some((*reserved, *counted, *refunded)),
        _ => None,
    };
    let mut rules: Vec<_> = settlement.rules.iter().map(|rule| (rule.rule(), told(&rule.status))).collect();
    rules.sort_unstable();
    rules
}

#[test]
fn unspent_units_are_refunded_where_they_were_taken() {
    on_every_provider(TOKENS, |scene| {
        let reservation = scene.reserve("ann", 800);
        assert!(reservation.is_allowed(), "{}", scene.provider);
        assert_eq!(reservation.expires_in(), Duration::from_secs(60));
        let denied = scene.reserve("ann", 300);
        assert!(!denied.is_allowed() && denied.text().is_none());
        assert!(OF_TOKENS.iter().all(|rule| scene.left_of(rule, "ann") == 200), "{:?}", scene.left("ann"));
        assert_eq!(scene.left_of("requests", "ann"), 9);

        let text = reservation.into_text().unwrap();
        let settled = scene.settle(&text, 150);
        assert!(settled.is_complete());
        let expected = Some((800, 150, 650));
        assert_eq!(
            told(&settled),
            [
                ("bucket", expected),
                ("fixed", expected),
                ("requests", Some((1, 1, 0))),
                ("sliding", expected),
                ("tokens", expected)
            ],
            "{}",
            scene.provider
        );
        assert!(OF_TOKENS.iter().all(|rule| scene.left_of(rule, "ann") == 850), "{:?}", scene.left("ann"));
        assert_eq!(scene.left_of("requests", "ann"), 9, "the request keeps its estimate");

        let again = scene.settle(&text, 10);
        assert!(again.rules.iter().all(|rule| rule.status == SettledStatus::NotOutstanding));
        let released = wait_for(scene.engine.release(&text)).unwrap();
        assert!(!released.is_complete());
        assert!(OF_TOKENS.iter().all(|rule| scene.left_of(rule, "ann") == 850), "{}", scene.provider);
    });
}

#[test]
fn units_beyond_the_estimate_are_counted() {
    on_every_provider(TOKENS, |scene| {
        let text = scene.reserve("ann", 900).into_text().unwrap();
        let settled = scene.settle(&text, 1_300);
        assert_eq!(told(&settled)[0], ("bucket", Some((900, 1_300, 0))), "{}", scene.provider);
        let next = scene.reserve("ann", 1);
        assert!(!next.is_allowed(), "{}: {:?}", scene.provider, scene.left("ann"));
        // The bucket refills 1,000 tokens an hour, and owes 301.
        let bucket = next.verdict().rules().find(|rule| rule.rule.id == "bucket").unwrap();
        assert_eq!(
            bucket.decision.retry_after().unwrap().as_secs(),
            301 * 3_600 / 1_000,
            "{}",
            scene.provider
        );
    });
}

#[test]
fn a_release_gives_everything_back() {
    on_every_provider(TOKENS, |scene| {
        let mut reservation = scene.reserve("ann", 1_000);
        let released = wait_for(reservation.release());
        assert!(released.is_complete());
        assert!(OF_TOKENS.iter().all(|rule| scene.left_of(rule, "ann") == 1_000), "{}", scene.provider);
        assert_eq!(scene.left_of("requests", "ann"), 10);
    });
}

#[test]
fn a_chosen_id_spends_once() {
    on_every_provider(TOKENS, |scene| {
        let options = a_minute().with_id("one").unwrap().on_drop(OnDrop::Keep);
        let mut first = scene.reserve_with("ann", 700, &options);
        let second = scene.reserve_with("ann", 700, &options);
        assert!(first.is_allowed() && second.is_allowed(), "{}", scene.provider);
        assert!(!first.is_repeated() && second.is_repeated());
        assert_eq!(first.text(), second.text());
        assert_eq!(scene.left_of("tokens", "ann"), 300, "{}", scene.provider);

        let (attributes, costs) = ([("user", "ann")], [("tokens", 701)]);
        let other = Request::new(&attributes).with_costs(&costs);
        let conflict = wait_for(scene.engine.reserve(&other, &options)).unwrap_err();
        assert_eq!(conflict, TrypemaError::ReservationConflict, "{}", scene.provider);
        assert_eq!(scene.left_of("tokens", "ann"), 300, "{}", scene.provider);

        wait_for(first.settle(&[("tokens", 100)])).unwrap();
        let again = scene.settle(&second.text().unwrap(), 400);
        assert!(again.rules.iter().all(|rule| rule.status == SettledStatus::SettledBefore), "{again:?}");
        let third = scene.reserve_with("ann", 700, &options);
        assert!(third.is_allowed() && third.is_repeated() && third.is_ended(), "{}", scene.provider);
        assert!(!second.is_ended());
        assert_eq!(scene.left_of("tokens", "ann"), 900, "{}", scene.provider);

        scene.clock.advance(Duration::from_secs(60));
        let new = scene.reserve_with("ann", 700, &options);
        assert!(new.is_allowed() && !new.is_repeated(), "{}", scene.provider);
        assert_eq!(scene.left_of("tokens", "ann"), 200, "{}", scene.provider);
    });
}

#[test]
fn at_expiry_the_estimate_stays_counted() {
    on_every_provider(TOKENS, |scene| {
        let early = scene.reserve("ann", 100).into_text().unwrap();
        let late = scene.reserve("ann", 200).into_text().unwrap();
        let second = Duration::from_secs(1);
        scene.clock.advance(60 * second - Duration::from_micros(1));
        assert_eq!(wait_for(scene.engine.renew(&late, 30 * second)).unwrap(), Some(30 * second));
        assert!(scene.settle(&early, 0).is_complete(), "{}", scene.provider);
        scene.clock.advance(30 * second - Duration::from_micros(1));
        assert_eq!(wait_for(scene.engine.renew(&late, second)).unwrap(), Some(second));
        scene.clock.advance(second);
        assert_eq!(wait_for(scene.engine.renew(&late, second)).unwrap(), None, "{}", scene.provider);
        assert!(!scene.settle(&late, 0).is_complete());
        assert_eq!(scene.left_of("tokens", "ann"), 800, "{}", scene.provider);
    });
}

#[test]
fn a_drop_does_as_configured() {
    on_every_provider(TOKENS, |scene| {
        let left_after = |user: &str, on_drop| {
            let options = a_minute().on_drop(on_drop);
            drop(scene.reserve_with(user, 10, &options));
            let key = format!("tokens|user={user}");
            // On Redis the drop is settled by a task.
            let holders = || wait_for(scene.engine.holders(&key)).unwrap().unwrap().len();
            while on_drop != OnDrop::Keep && holders() > 0 {
                std::thread::yield_now();
            }
            (scene.left_of("tokens", user), holders())
        };
        assert_eq!(left_after("settle", OnDrop::Settle), (990, 0), "{}", scene.provider);
        assert_eq!(left_after("release", OnDrop::Release), (1_000, 0), "{}", scene.provider);
        assert_eq!(left_after("keep", OnDrop::Keep), (990, 1), "{}", scene.provider);
    });
}

#[test]
fn a_made_up_text_finds_nothing() {
    on_every_provider(TOKENS, |scene| {
        let text = scene.reserve("ann", 500).into_text().unwrap();
        for wrong in ["", "r1.", "r1.AAAA", &text[..text.len() - 4], &text.to_lowercase()] {
            let result = wait_for(scene.engine.settle(wrong, &[]));
            let is_harmless = result.as_ref().is_ok_and(|settled| !settled.is_complete())
                || matches!(result, Err(TrypemaError::InvalidReservation { .. }));
            assert!(is_harmless, "{wrong}: {result:?}");
        }
        assert_eq!(scene.left_of("tokens", "ann"), 500, "{}", scene.provider);
        assert!(matches!(
            wait_for(scene.engine.settle(&text, &[("seconds", 1)])),
            Err(TrypemaError::InvalidRequest { .. })
        ));
        assert!(scene.settle(&text, 500).is_complete(), "an invalid cost settled nothing");
    });
}

/// The counter of a concurrency rule is the table in which the repeated request finds its reservation.
#[test]
fn a_repeated_request_holds_no_second_slot() {
    let slots = "rules: [{id: slots, scope: user, strategy: {concurrency: {limit: 2, hold: 60s}}}]";
    on_every_provider(slots, |scene| {
        let attributes = [("user", "ann")];
        let request = Request::new(&attributes);
        let reserve = |cost| {
            let options = a_minute().with_id("id").unwrap().on_drop(OnDrop::Keep);
            wait_for(scene.engine.reserve(&request.costing(cost), &options))
        };
        let left =
            |made: &trypema::rules::Reservation| made.verdict().rules().next().unwrap().decision.remaining();
        let (first, again) = (reserve(1).unwrap(), reserve(1).unwrap());
        assert!(!first.is_repeated() && again.is_repeated(), "{}", scene.provider);
        assert_eq!((left(&first), left(&again), first.text()), (1, 1, again.text()), "{}", scene.provider);
        assert_eq!(reserve(2).unwrap_err(), TrypemaError::ReservationConflict, "{}", scene.provider);
        let released = wait_for(scene.engine.release(&first.text().unwrap())).unwrap();
        assert!(released.is_complete() && released.is_settled(), "{}", scene.provider);
        assert!(!wait_for(scene.engine.release(&first.text().unwrap())).unwrap().is_settled());
    });
}

/// The changes of one rule tell how long each reservation lasts and would have lasted, on every provider alike.
#[test]
fn an_observer_hears_of_every_change() {
    const SHADOWED: &str = "
rules:
  - {id: slots, scope: user, strategy: {concurrency: {limit: 2, hold: 1h}}}
  - {id: bucket, scope: user, action: log_only, strategy: {token_bucket: {limit: 1, window: 1h}}}
";
    on_every_provider(SHADOWED, |scene| {
        let Scene { provider, engine, clock, changes } = scene;
        let heard = |rule: &str| -> Vec<ReservationChange> {
            let changes = std::mem::take(&mut *changes.0.lock().unwrap());
            changes.into_iter().filter(|(of, _)| of == rule).map(|(_, change)| change).collect()
        };
        let attributes = [("user", "ann")];
        let reserve = |cost, id: Option<&str>| {
            let options = a_minute().on_drop(OnDrop::Keep);
            let options = id.map_or(Ok(options.clone()), |id| options.with_id(id)).unwrap();
            wait_for(engine.reserve(&Request::new(&attributes).costing(cost), &options)).unwrap().into_text()
        };
        let seconds = Duration::from_secs;
        let text = reserve(1, Some("id")).unwrap();
        assert_eq!(heard("slots"), [ReservationChange::Reserved { expires_in: seconds(60) }], "{provider}");
        reserve(1, Some("id")).unwrap();
        assert_eq!(heard("slots"), [], "{provider}: repeated");
        assert_eq!(reserve(2, None), None);
        assert_eq!(heard("slots"), [], "{provider}: denied");
        reserve(1, None).unwrap();
        assert_eq!(heard("bucket"), [], "{provider}: the log-only rule has no unit left, and reserved none");
        clock.advance(seconds(20));
        wait_for(engine.renew(&text, seconds(300))).unwrap();
        let (was_left, expires_in) = (seconds(40), seconds(300));
        assert_eq!(heard("slots"), [ReservationChange::Renewed { was_left, expires_in }], "{provider}");
        clock.advance(seconds(100));
        wait_for(engine.settle(&text, &[])).unwrap();
        let settled = [ReservationChange::Settled { was_left: seconds(200) }];
        assert_eq!(heard("bucket"), settled, "{provider}");
        wait_for(engine.settle(&text, &[])).unwrap();
        wait_for(engine.renew(&text, seconds(300))).unwrap();
        assert_eq!(heard("slots"), [ReservationChange::NotOutstanding; 2], "{provider}");
        let text = reserve(2, None).unwrap();
        wait_for(engine.release(&text)).unwrap();
        let released = ReservationChange::Released { was_left: seconds(60) };
        assert_eq!(heard("slots").last(), Some(&released), "{provider}");
    });
}

/// A slot of no units is no slot: there is nothing to settle.
#[test]
fn no_units_hold_nothing() {
    let slots = "rules: [{id: slots, scope: user, strategy: {concurrency: {limit: 1, hold: 60s}}}]";
    on_every_provider(slots, |scene| {
        let request = [("user", "ann")];
        let mut nothing =
            wait_for(scene.engine.reserve(&Request::new(&request).costing(0), &a_minute())).unwrap();
        assert!(nothing.is_allowed() && nothing.text().is_some(), "{}", scene.provider);
        let released = wait_for(nothing.release());
        assert!(released.is_complete() && released.rules.is_empty(), "{}: {released:?}", scene.provider);
    });
}
