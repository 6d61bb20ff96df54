//! The slot of a key, and the slot ranges of each node.

use ::redis::Value;

pub(super) const SLOTS: usize = 16_384;

/// Returns the slot of a key: the hash of its hash tag, or of the whole key if it has none. The hash tag is
/// the text between the first `{` and the next `}`, if it is not empty.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) % SLOTS as u16
}

fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let inside = &key[open + 1..];
    match inside.iter().position(|byte| *byte == b'}') {
        Some(0) | None => key,
        Some(close) => &inside[..close],
    }
}

/// CRC-16/XMODEM: polynomial 0x1021, starting from 0, not reflected.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ CRC_TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

const CRC_TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < table.len() {
        let mut crc = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

/// A range of slots that one node serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SlotRange {
    pub(super) first: u16,
    pub(super) last: u16,
    /// `host:port`. An empty host stands for the host of the node that sent the reply.
    pub(super) address: String,
}

/// Returns the ranges in the reply to `CLUSTER SLOTS`. Malformed entries are skipped.
pub(super) fn slot_ranges(reply: &Value) -> Vec<SlotRange> {
    let Value::Array(ranges) = reply else { return Vec::new() };
    ranges.iter().filter_map(slot_range).collect()
}

fn slot_range(range: &Value) -> Option<SlotRange> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = parts.as_slice() else {
        return None;
    };
    let [host, Value::Int(port), ..] = master.as_slice() else { return None };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    let host = match host {
        Value::Nil => "",
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        _ => return None,
    };
    // A node reports `?` for a host that it does not know.
    if host == "?" || first > last || usize::from(last) >= SLOTS {
        return None;
    }
    Some(SlotRange { first, last, address: format!("{host}:{port}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // The first is the check value of the CRC. The others are replies to `CLUSTER KEYSLOT`.
        assert_eq!(crc16(b"123456789"), 0x31C3);
        for (key, slot) in [
            ("123456789", 12_739),
            ("", 0),
            ("foo", 12_182),
            ("bar", 5_061),
            ("trypema:{ann}:absolute", slot_of(b"ann")),
            ("{user1000}.following", slot_of(b"user1000")),
            ("foo{}{bar}", 8_363),
            ("foo{{bar}}zap", slot_of(b"{bar")),
            ("foo{bar}{zap}", slot_of(b"bar")),
            ("{", slot_of(b"{")),
            ("a}b{c", crc16(b"a}b{c") % 16_384),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let master = Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec())]);
        let replica = Value::Array(vec![Value::BulkString(b"10.0.0.9".to_vec()), Value::Int(1)]);
        Value::Array(vec![Value::Int(first), Value::Int(last), master, replica])
    }

    #[test]
    fn ranges_name_the_master_and_nonsense_is_left_out() {
        let host = |host: &str| Value::BulkString(host.as_bytes().to_vec());
        let reply = Value::Array(vec![
            range(0, 5_460, host("10.0.0.1"), 7_000),
            range(5_461, 10_922, Value::Nil, 7_001),
            range(10_923, 16_383, host(""), 7_002),
            range(1, 2, host("?"), 7_003),
            range(2, 1, host("10.0.0.1"), 7_000),
            range(0, 16_384, host("10.0.0.1"), 7_000),
            range(-1, 1, host("10.0.0.1"), 7_000),
            Value::Array(vec![Value::Int(0)]),
            Value::Nil,
        ]);
        let expected = [(0, 5_460, "10.0.0.1:7000"), (5_461, 10_922, ":7001"), (10_923, 16_383, ":7002")];
        let expected =
            expected.map(|(first, last, address)| SlotRange { first, last, address: address.into() });
        assert_eq!(slot_ranges(&reply), expected);
        assert_eq!(slot_ranges(&Value::Okay), []);
    }
}
