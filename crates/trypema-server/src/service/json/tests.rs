use std::time::Duration;

use trypema::rules::AttributeSet;

use super::values::MAX_TTL;
use super::*;

fn refusal_of(body: &str) -> String {
    let body = body.as_bytes();
    let read = if is_batch(body) { read_batch(body, 2).map(drop) } else { read_one(body).map(drop) };
    reason(read.expect_err("the body is invalid"))
}

fn read_one(body: &[u8]) -> Result<(Mode, OwnedRequest), Refusal> {
    read::<CheckRequest>(body)?.into_parts()
}

#[test]
fn errors_name_the_problem_and_its_location() {
    let cases = [
        ("", "EOF while parsing"),
        ("{}", "missing field `attributes`"),
        (r#"{"attributes":{},"price":1}"#, "unknown field `price`"),
        (r#"{"attributes":{},"costs":1}"#, "expected an object of costs by unit"),
        (r#"{"attributes":{},"costs":{"tokens":-1}}"#, "integer `-1`, expected a cost: a whole number"),
        (r#"{"attributes":{},"costs":{"tokens":0.5}}"#, "floating point `0.5`, expected a cost"),
        (r#"{"attributes":{},"costs":{"tokens":"9"}}"#, "expected a cost"),
        (r#"{"attributes":{},"costs":{"tokens":1,"tokens":2}}"#, "is given twice"),
        (r#"{"attributes":{},"cost":1,"costs":{"tokens":1}}"#, "`cost` beside `costs`"),
        (r#"{"sets":[{"attributes":{},"cost":1,"costs":{}}]}"#, "`cost` beside `costs`"),
        (r#"{"attributes":{},"sets":[{"attributes":{}}]}"#, "`sets` excludes `attributes`"),
        (r#"{"cost":1,"sets":[{"attributes":{}}]}"#, "`sets` excludes `attributes`"),
        (r#"{"sets":[]}"#, "need at least one set"),
        (r#"{"sets":[{}]}"#, "missing field `attributes`"),
        (r#"{"sets":[{"attributes":{},"mode":"peek"}]}"#, "unknown field `mode`"),
        (r#"{"costs":{"tokens":1}}"#, "missing field `attributes`, or `sets`"),
        (r#"{"attributes":{"user":1}}"#, "expected a text at line 1 column 23"),
        (r#"{"attributes":{"user":"a","user":"b"}}"#, r#"attribute "user" is given twice"#),
        (r#"{"attributes":{"ip":"203.0.113.9:80"}}"#, "ip: need an address"),
        (r#"{"attributes":["user=a","user=b"]}"#, r#"attribute "user" is given twice"#),
        (r#"{"attributes":["user"]}"#, r#"needs the form "user=ann""#),
        (r#"{"attributes":["=ann"]}"#, "an attribute's name needs"),
        (r#"{"attributes":"user=ann"}"#, "expected an object of texts, or a list of texts"),
        (r#"{"attributes":{},"cost":-1}"#, "expected a cost: a whole number, 0 or more"),
        (r#"{"attributes":{},"cost":1.5}"#, "expected a cost: a whole number, 0 or more"),
        (r#"{"attributes":{},"cost":18446744073709551616}"#, "expected a cost: a whole number, 0 or more"),
        (r#"{"attributes":{},"mode":"burn"}"#, "unknown variant `burn`"),
        (r#"[[{"user":"bob"},2,"peek"]]"#, "expected an object"),
        (r#"{"attributes":{}} x"#, "trailing characters"),
        (r#"[{"attributes":{}},{"attributes":{}},{"attributes":{}}]"#, "the maximum is 2 (max_batch)"),
        (&format!("{{\"{}\": 1}}", "x".repeat(100_000)), "xxx… at line 1 column 100003"),
        (&"[".repeat(200_000), "expected an object"),
        (&r#"{"attributes":"#.repeat(200_000), "expected a text"),
    ];
    for (body, expected) in cases {
        let detail = refusal_of(body);
        assert!(detail.contains(expected), "{body:.60}: {detail}");
    }
}

/// Returns the mode of a request, and its sets: attributes, and costs in `requests` and in `tokens`.
#[allow(clippy::type_complexity, reason = "only for comparisons")]
fn parsed(body: &str) -> (Mode, Vec<(Vec<(String, String)>, Option<u64>, Option<u64>)>) {
    let (mode, request) = read_one(body.as_bytes()).unwrap_or_else(|refusal| panic!("{refusal:?}"));
    let (pairs, owned) = (request.pairs(), |text: &&str| (*text).to_owned());
    let of_set = |set: &AttributeSet<'_>| {
        let attributes = set.attributes().iter().map(|(name, value)| (owned(name), owned(value)));
        (attributes.collect(), set.cost_of("requests"), set.cost_of("tokens"))
    };
    (mode, pairs.sets().iter().map(of_set).collect())
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[test]
fn attributes_may_be_a_list() {
    let (mode, sets) = parsed(r#"{"attributes": ["user=ann", "endpoint=/a?b=c", "na\u006de="]}"#);
    let attributes = vec![pair("user", "ann"), pair("endpoint", "/a?b=c"), pair("name", "")];
    assert_eq!((mode, sets), (Mode::Check, vec![(attributes, Some(1), None)]));
}

#[test]
fn escapes_are_understood() {
    let (mode, sets) = parsed(r#" {"attributes": {"\u0075ser": "a\nb"}, "cost": 3, "mode": "record"}"#);
    assert_eq!((mode, sets), (Mode::Record, vec![(vec![pair("user", "a\nb")], Some(3), None)]));
}

#[test]
fn costs_and_sets_are_read() {
    let (_, sets) = parsed(r#"{"attributes": {}, "costs": {"tokens": 4200}}"#);
    assert_eq!(sets, [(vec![], Some(1), Some(4_200))]);
    let (mode, sets) = parsed(
        r#"{"sets": [{"attributes": {"user": "ann"}, "costs": {"requests": 0, "tokens": 7}},
            {"attributes": ["tenant=acme"], "cost": 2}], "mode": "peek"}"#,
    );
    assert_eq!(mode, Mode::Peek);
    let of_tenant = (vec![pair("tenant", "acme")], Some(2), None);
    assert_eq!(sets, [(vec![pair("user", "ann")], Some(0), Some(7)), of_tenant]);
}

fn reason(refusal: Refusal) -> String {
    match refusal {
        Refusal::Invalid(reason) => reason.into_owned(),
        other => panic!("{other:?}"),
    }
}

fn ttl_of(ttl: &str) -> Result<Duration, String> {
    let body = format!(r#"{{"reservation": "r1.x"{ttl}}}"#);
    let renewal = read::<RenewRequest>(body.as_bytes()).map_err(reason)?;
    Ok(renewal.ttl.0)
}

#[test]
fn a_ttl_is_at_most_an_hour() {
    assert_eq!(ttl_of(""), Ok(Duration::from_secs(60)));
    assert_eq!(ttl_of(r#", "ttl": "1m30s""#), Ok(Duration::from_secs(90)));
    assert_eq!(ttl_of(r#", "ttl": "1h""#), Ok(MAX_TTL));
    assert_eq!(ttl_of(r#", "ttl": "1us""#), Ok(Duration::from_micros(1)));
    for (ttl, expected) in [
        ("\"0s\"", "ttl: need more than 0s and at most 1h"),
        ("\"1h1us\"", "ttl: need more than 0s and at most 1h"),
        ("\"365d\"", "ttl: need more than 0s and at most 1h"),
        ("\"60\"", "ttl: `60` needs a unit"),
        ("60", "ttl: `60` needs a unit"),
        ("\"\"", "ttl: invalid length of time"),
        ("\"-5s\"", "ttl: invalid length of time"),
        ("-5", "expected a ttl"),
        ("1.5", "expected a ttl"),
        ("null", "expected a ttl"),
        ("[]", "expected a ttl"),
    ] {
        let error = ttl_of(&format!(", \"ttl\": {ttl}")).expect_err(ttl);
        assert!(error.contains(expected), "{ttl}: {error}");
    }
}

#[test]
fn fields_are_required_and_known() {
    let settle =
        |body: &str| read::<SettleRequest>(body.as_bytes()).and_then(|mut request| request.named().map(drop));
    for (body, expected) in [
        (r#"{"costs": {}}"#, "missing field `reservation`, or `id` with `attributes` or `sets`"),
        (r#"{"costs": {}, "attributes": {}}"#, "missing field `reservation`, or `id` with"),
        (r#"{"costs": {}, "id": "a"}"#, "`id` needs the `attributes` or `sets`"),
        (r#"{"costs": {}, "id": "a", "attributes": {}, "sets": []}"#, "`sets` excludes `attributes`"),
        (r#"{"costs": {}, "id": "a", "sets": []}"#, "`sets` is empty"),
        (r#"{"costs": {}, "id": "a", "reservation": "r1.x"}"#, "`reservation` excludes `id`"),
        (r#"{"costs": {}, "attributes": {}, "reservation": "r1.x"}"#, "`reservation` excludes `id`"),
        (r#"{"reservation": "r1.x"}"#, "missing field `costs`"),
        (r#"{"reservation": null, "costs": {}}"#, "expected a text"),
        (r#"{"reservation": ["r1.x"], "costs": {}}"#, "expected a text"),
        (r#"{"reservation": "r1.x", "costs": null}"#, "expected an object of costs"),
        (r#"{"reservation": "r1.x", "costs": {"tokens": null}}"#, "expected a cost"),
        (r#"{"reservation": "r1.x", "costs": {"tokens": -1}}"#, "expected a cost"),
        (r#"{"reservation": "r1.x", "costs": {"tokens": 0.5}}"#, "expected a cost"),
        (r#"{"reservation": "r1.x", "costs": {"tokens": 1, "tokens": 1}}"#, "is given twice"),
        (r#"{"reservation": "r1.x", "costs": {}, "cost": 1}"#, "unknown field `cost`"),
        (r#"{"reservation": "r1.x", "reservation": "r1.y", "costs": {}}"#, "duplicate field"),
    ] {
        let error = reason(settle(body).expect_err(body));
        assert!(error.contains(expected), "{body}: {error}");
    }
    assert!(settle(r#"{"reservation": "r1.x", "costs": {}}"#).is_ok());
    assert!(settle(r#"{"id": "a", "attributes": {"user": "ann"}, "costs": {}}"#).is_ok());
    assert!(settle(r#"{"id": "a", "sets": [{"attributes": {"user": "ann"}}], "costs": {}}"#).is_ok());
}

#[test]
fn an_id_has_bounds() {
    let reserve = |id: &str| {
        let body = format!(r#"{{"attributes": {{}}, "id": {id}}}"#);
        let parts = read::<ReserveRequest>(body.as_bytes()).and_then(ReserveRequest::into_parts);
        parts.map(drop).map_err(reason)
    };
    let longest = format!("\"{}\"", "x".repeat(MAX_ID));
    assert_eq!((reserve("\"a\""), reserve(&longest)), (Ok(()), Ok(())));
    for id in ["\"\"".to_owned(), format!("\"{}\"", "x".repeat(MAX_ID + 1))] {
        assert!(reserve(&id).unwrap_err().contains("id: need 1 to 128 bytes"));
    }
    assert!(reserve("null").unwrap_err().contains("expected a text"));
    assert!(reserve("7").unwrap_err().contains("expected a text"));
}
