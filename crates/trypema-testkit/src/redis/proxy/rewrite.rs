//! Replaces strings in requests.

/// A string in requests, and its replacement of the same length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewrite {
    /// The string that clients send.
    pub from: Vec<u8>,
    /// The string that the server receives instead.
    pub to: Vec<u8>,
}

impl Rewrite {
    /// Whether `bytes` are a proper prefix of `from`, so that the rest may follow.
    fn may_follow(&self, bytes: &[u8]) -> bool {
        bytes.len() < self.from.len() && self.from.starts_with(bytes)
    }
}

/// Replaces strings in one direction of a connection, even those that are split over two chunks.
#[derive(Debug, Default)]
pub(super) struct Rewriter {
    /// The end of the last chunk, if it may be the beginning of a string to replace.
    held: Vec<u8>,
}

/// A chunk after replacement.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rewritten {
    pub(super) bytes: Vec<u8>,
    /// The number of replaced strings.
    pub(super) count: u64,
}

impl Rewriter {
    pub(super) fn pass(&mut self, rewrites: &[Rewrite], chunk: &[u8]) -> Rewritten {
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(chunk);
        let (mut at, mut count) = (0, 0);
        while at < bytes.len() {
            let rest = &bytes[at..];
            if let Some(rewrite) = rewrites.iter().find(|rewrite| rest.starts_with(&rewrite.from)) {
                bytes[at..at + rewrite.to.len()].copy_from_slice(&rewrite.to);
                (at, count) = (at + rewrite.to.len(), count + 1);
            } else if rewrites.iter().any(|rewrite| rewrite.may_follow(rest)) {
                self.held = bytes.split_off(at);
            } else {
                at += 1;
            }
        }
        Rewritten { bytes, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_replaced_wherever_chunks_end() {
        let rewrites = [
            Rewrite { from: b"abc".into(), to: b"xyz".into() },
            Rewrite { from: b"aa".into(), to: b"bb".into() },
        ];
        let sent = b"*abc$aab abcabc a\r\n";
        for split in 0..=sent.len() {
            let (mut rewriter, mut received, mut count) = (Rewriter::default(), Vec::new(), 0);
            for chunk in [&sent[..split], &sent[split..]] {
                let rewritten = rewriter.pass(&rewrites, chunk);
                received.extend(rewritten.bytes);
                count += rewritten.count;
            }
            assert_eq!(String::from_utf8_lossy(&received), "*xyz$bbb xyzxyz a\r\n", "split at {split}");
            assert_eq!(count, 4);
        }
    }
}
