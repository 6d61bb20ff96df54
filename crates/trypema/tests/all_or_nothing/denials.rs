//! A request that one of its checks denies spends nothing. Only the denials that a strategy counts are
//! recorded.

use std::time::Duration;

use trypema::Limit;

use super::asked::{Asked, View, six};
use super::provider::{Provider, Stored};

const CAPACITY: u64 = 10;
/// Ten seconds, so that the suppressed strategy's target per second is a tenth of its limit.
const WINDOW: Duration = Duration::from_secs(10);
/// More units than all callers of a test take together.
const WIDE: u64 = 1_000;
const CALLERS: usize = 64;
/// The hard limit factor of suppressed limits that are not meant to deny.
const DRAWING: f64 = 2.0;

/// Returns five checks of cost 1. Each of the six arrangements puts a different strategy last, and no two
/// arrangements use the same key with the same strategy.
fn five(keys: &[String; 5], arrangement: usize, first_four: u64) -> Vec<Asked> {
    let (others, last) = (six(first_four, WINDOW, DRAWING), six(CAPACITY, WINDOW, 1.0));
    let limit = |position: usize| {
        let limits = if position < 4 { &others } else { &last };
        &limits[(arrangement + position) % 6]
    };
    keys.iter().enumerate().map(|(position, key)| Asked::new(key, limit(position), 1)).collect()
}

/// The decision and the stored state of each check. The stored state of suppressed checks is left out: that
/// strategy also counts denied requests, so its bytes may change.
fn picture(provider: &impl Provider, asked: &[Asked]) -> Vec<(View, Option<Stored>)> {
    let of = |asked: &Asked| {
        let stored = if asked.is_suppressed() { None } else { provider.stored(asked) };
        (View::of(&provider.usage(asked)), stored)
    };
    asked.iter().map(of).collect()
}

/// The number of units that the suppressed strategy has observed for a key within the last second, derived
/// from its suppression factor: 1 - soft / (seen × window).
pub(crate) fn seen(provider: &impl Provider, asked: &Asked) -> u64 {
    let Limit::Suppressed(limit) = &asked.limit else { panic!("{asked:?} is not suppressed") };
    let above_soft = provider.usage(asked).remaining() + 1;
    let factor = provider.factor(&asked.costing(above_soft)).expect("between the limits it draws");
    let seen = limit.soft() as f64 / (1.0 - factor) / limit.window().as_secs_f64();
    seen.round() as u64 - above_soft
}

/// If the last of five checks denies, the other four are unchanged, whichever strategies they use.
pub(crate) fn the_last_of_five_denies(provider: &impl Provider, keys: &[String; 5]) {
    for arrangement in 0..6 {
        let asked = five(keys, arrangement, CAPACITY);
        let (four, last) = asked.split_at(4);
        let spent: Vec<Asked> = four.iter().map(|asked| asked.costing(3)).collect();
        assert!(provider.take_all(&spent).unwrap().is_allowed);
        assert!(provider.take_all(&[last[0].costing(CAPACITY)]).unwrap().is_allowed);
        let before = picture(provider, &asked);
        for denial in 1..=3 {
            let denied = match denial {
                2 => provider.take_all_with_receipts(&asked).unwrap(),
                _ => provider.take_all(&asked).unwrap(),
            };
            assert!(!denied.is_allowed && denied.receipts.is_empty(), "{denied:?}");
            for (asked, decision) in four.iter().zip(&denied.decisions) {
                assert!(decision.is_allowed(), "{asked:?} was told {decision:?}");
                assert_eq!(decision.remaining(), CAPACITY - 3, "nothing of the denied request");
            }
            assert!(denied.decisions[4].retry_after().is_some_and(|wait| !wait.is_zero()), "{denied:?}");
            assert_eq!(picture(provider, four), before[..4], "denial {denial} by {last:?}");
            for asked in four.iter().filter(|asked| asked.is_suppressed()) {
                assert_eq!(seen(provider, asked), 3 + denial, "admitted and forgone");
            }
            assert_counted(provider, &last[0], (&before[4], denial));
        }
    }
}

/// The check that denied counts its denials if its strategy does, and changes nothing else.
fn assert_counted(provider: &impl Provider, last: &Asked, (before, denials): (&(View, Option<Stored>), u64)) {
    match &last.limit {
        Limit::Suppressed(_) => {
            let drawing = Asked::new(&last.key, &six(CAPACITY, WINDOW, DRAWING)[1], 1);
            assert_eq!(seen(provider, &drawing), CAPACITY + denials);
        }
        Limit::Abuse(_) => {
            let usage = View::of(&provider.usage(last));
            assert!(before.0.is_allowed && !usage.is_allowed, "an attempt too many is blocked: {usage:?}");
        }
        _ => assert_eq!(picture(provider, std::slice::from_ref(last))[0], *before, "{last:?}"),
    }
}

/// Any subset of the five checks may deny: nothing is spent.
pub(crate) fn any_of_five_denies(provider: &impl Provider, keys: &[String; 5]) {
    let limits = six(CAPACITY, WINDOW, DRAWING);
    let asked: Vec<Asked> = keys.iter().map(|key| Asked::new(key, &limits[4], 1)).collect();
    for denying in 1..1_u32 << asked.len() {
        let is_denying = |position: usize| denying & 1 << position != 0;
        let cost = |position| if is_denying(position) { CAPACITY + 1 } else { 1 };
        let asked: Vec<Asked> =
            asked.iter().enumerate().map(|(position, asked)| asked.costing(cost(position))).collect();
        let denied = provider.take_all(&asked).unwrap();
        assert!(!denied.is_allowed);
        for (position, decision) in denied.decisions.iter().enumerate() {
            assert_eq!(decision.is_allowed(), !is_denying(position), "{denying:b}");
        }
        assert_eq!(provider.left(&asked), [CAPACITY; 5], "{denying:b}");
    }
}

/// The last of five checks admits only some of many concurrent callers. The other four have spent only the
/// units of admitted callers.
pub(crate) fn many_at_once(provider: &impl Provider, keys: &[String; 5]) {
    for arrangement in 0..6 {
        let asked = five(keys, arrangement, WIDE);
        let answers = provider.take_all_at_once(&vec![asked.clone(); CALLERS]);
        for answer in &answers {
            assert_eq!(answer.decisions.len(), 5);
            assert_eq!(answer.is_allowed, answer.decisions[4].is_allowed(), "{answer:?}");
        }
        let admitted = answers.iter().filter(|answer| answer.is_allowed).count() as u64;
        assert_eq!(admitted, CAPACITY, "{:?}", asked[4]);
        assert_eq!(provider.left(&asked[..4]), [WIDE - admitted; 4], "{:?}", asked[4]);
        for asked in asked[..4].iter().filter(|asked| asked.is_suppressed()) {
            assert_eq!(seen(provider, asked), CALLERS as u64, "every call was seen once");
        }
    }
}
