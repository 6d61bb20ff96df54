//! An independent parser of request bodies, to predict the server's decisions.

use serde_json::Value;

/// Returns the costs of the requests in a body, or `None` if the body is invalid.
pub(super) fn asked(body: &[u8]) -> Option<Vec<u64>> {
    match serde_json::from_slice(body).ok()? {
        Value::Array(many) if many.len() <= 1_000 => many.iter().map(cost).collect(),
        Value::Array(_) => None,
        one => Some(vec![cost(&one)?]),
    }
}

fn cost(asked: &Value) -> Option<u64> {
    let fields = asked.as_object()?;
    let is_known = |name: &String| ["attributes", "cost", "mode"].contains(&name.as_str());
    let attributes = attributes(fields.get("attributes")?)?;
    let is_fine = |(name, value): &(&str, &str)| matches!(name.len(), 1..=64) && value.len() <= 8_192;
    let is_mode = fields.get("mode").is_none_or(|mode| mode == "check" || mode == "record" || mode == "peek");
    if !is_mode || !fields.keys().all(is_known) || attributes.len() > 32 || !attributes.iter().all(is_fine) {
        return None;
    }
    fields.get("cost").map_or(Some(1), Value::as_u64)
}

/// Returns the attributes of an object, or of a list of texts such as `user=ann`.
fn attributes(written: &Value) -> Option<Vec<(&str, &str)>> {
    match written {
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| Some((&**name, value.as_str()?))).collect()
        }
        Value::Array(pairs) => pairs.iter().map(|pair| pair.as_str()?.split_once('=')).collect(),
        _ => None,
    }
}

/// Returns for each request of a 200 response whether it is allowed.
pub(super) fn allowed(answer: &str) -> Vec<bool> {
    let is_allowed = |one: &Value| one["allowed"] == Value::Bool(true);
    match serde_json::from_str(answer) {
        Ok(Value::Array(many)) => many.iter().map(is_allowed).collect(),
        Ok(one) => vec![is_allowed(&one)],
        Err(_) => Vec::new(),
    }
}
