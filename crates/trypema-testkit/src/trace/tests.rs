//! Tests of the parser: every error names its line, and no input causes a panic.

use super::{Local, Pure, Trace, replay};

const GOOD: &str = "\
# every verb and every answer
absolute rate=5/s window=60s group=10ms sticky
+0 ann -> allowed left=299 limit=300 reset=60s wait=0
+1.5s ann reserve 2 as a for 2s -> allowed stamp=2s
-2s ann refund a -> refunded 2
@1600000000s ann upto 3 -> granted 3
+0 ann refund_units 1 -> refunded 1
+0 ann inc 300 -> rejected 60s remaining_after_waiting=0
+0 ann is_allowed -> allowed
+0 ann set_rate 1/60s -> true
+0 * forget -> done keys=1
+0 ann reset -> true
suppressed rate=5/s window=60s factor=2
+0 ann peek 1_000 -> denied never
+0 ann usage -> suppressed denied factor=0.5
token_bucket 10/1s 100/1m
+1us ann take 10 -> allowed balances=0,90
+0 ann 1 -> denied 100ms failed=0
fixed_window 10/1s -> refused
abuse short=60s/3/600s long=1h/10/1d while_blocked=ignore
+0 ann block short 10s -> done
+0 ann check -> blocked short 10s short=1 long=1 end=10s
+0 ann unblock -> true
";

fn message(text: &str) -> String {
    Trace::parse("t.trace", text).map(|_| String::new()).unwrap_or_else(|error| error.to_string())
}

fn good() -> String {
    GOOD.replace("fixed_window 10/1s -> refused", "fixed_window 0/1s -> refused")
}

#[test]
fn every_word_of_the_format_is_read() {
    assert_eq!(message(&good()), "");
}

#[test]
fn mistakes_name_their_line() {
    assert_eq!(message(GOOD), "t.trace:19: the limit was to be refused and is accepted");
    let step = |step: &str| message(&format!("# c\nfixed_window 10/1s\n{step}\n"));
    for (mistake, expected) in [
        ("+0 ann", "a step needs `->` and an answer"),
        ("+0 -> allowed", "a step begins with a time and a key"),
        ("+0 ann ->", "nothing is expected after `->`"),
        ("+0 ann -> maybe", "`maybe` begins no expectation, or lacks what follows it"),
        ("+0 ann -> denied", "`denied` begins no expectation, or lacks what follows it"),
        ("+0 ann -> denied soon", "`soon` is no time"),
        ("+0 ann -> allowed quickly", "unknown word `quickly`"),
        ("+0 ann -> allowed lefty=1", "unknown field `lefty`"),
        ("+0 ann -> allowed left=-1", "`-1` is no whole number"),
        ("+0 ann -> blocked middle 1s", "`middle` is neither `short` nor `long`"),
        ("+0 ann -> suppressed allowed factor=nan", "`nan` is no number"),
        ("+0 ann steal 3 -> allowed", "`steal 3` is no verb with what it needs"),
        ("+0 ann refund a -> refunded 1", "no receipt is named `a`"),
        ("0 ann -> allowed", "`0` is no time of a step"),
        ("+1 ann -> allowed", "`+1` is no time of a step"),
        ("-9999999999s ann -> allowed", "`-9999999999s` leads out of time"),
        ("@9007199254740992us ann -> allowed", "`@9007199254740992us` leads out of time"),
        ("gcra 10/1s", "a step needs `->` and an answer"),
        ("fixed_window 10", "`10` is no limit/window"),
        ("fixed_window 0/1s", "invalid limit 0: need 1 to 9007199254740991"),
        ("absolute rate=5/s", "a rate and a window are needed"),
        ("absolute rate=5/s window=1.5s", "`1.5s` is no whole number of s"),
        ("absolute rate=5/s window=60s slippery", "unknown option `slippery`"),
    ] {
        assert_eq!(step(mistake), format!("t.trace:3: {expected}"));
    }
    assert_eq!(
        message("fixed_window 1/1s\n"),
        "t.trace:1: a trace opens with a comment that says what it holds"
    );
    assert_eq!(message("# c\n+0 a -> allowed\n"), "t.trace:2: a limit line comes before the first step");
    assert_eq!(message("# c\nfixed_window 1/1s\n"), "t.trace:2: a trace has at least one step");
    let twice = "+0 a reserve 1 as r -> allowed\n+0 a reserve 1 as r -> allowed";
    assert_eq!(step(twice), "t.trace:4: two receipts are named `r`");
}

/// Parses mutants of a valid trace: changed, removed or inserted characters, and truncated texts. Valid
/// mutants are replayed as well.
#[test]
fn no_input_panics() {
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below.max(1) as u64) as usize
    };
    let alphabet: Vec<char> = "0123456789.=/-+@#>_ \n\tabsumhdné→\u{0}".chars().collect();
    let mut was_read = 0;
    for _ in 0..20_000 {
        let mut text: Vec<char> = good().chars().collect();
        for _ in 0..=random(3) {
            let at = random(text.len());
            match random(4) {
                0 => text[at] = alphabet[random(alphabet.len())],
                1 => drop(text.remove(at)),
                2 => text.insert(at, alphabet[random(alphabet.len())]),
                _ => text.truncate(at + 1),
            }
        }
        let text: String = text.into_iter().collect();
        if let Ok(trace) = Trace::parse("mutant.trace", &text) {
            was_read += 1;
            let _ = Local::for_trace(&trace).map(|mut local| replay(&trace, &mut local));
            let _ = replay(&trace, &mut Pure::default());
        }
    }
    assert!(was_read > 1_000, "mutants should get past the reader now and then: {was_read}");
}
