//! Samples a share of all keys: the same keys on every server and in every version.

/// Whether a counter name is in the sample of size `share`. A larger share includes all names of a smaller
/// one.
pub(super) fn contains(share: f64, name: &str) -> bool {
    // Uses 53 of the 64 bits, which an `f64` represents exactly, so that the division is exact.
    let place = (hash(name) >> 11) as f64 / (1_u64 << 53) as f64;
    place < share
}

/// FNV-1a, followed by the 64-bit finalizer of MurmurHash3. Without the finalizer, names that differ only at
/// the end would get similar hashes. Must never change: a candidate's share would then select other keys.
fn hash(name: &str) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mut hash = name.bytes().fold(BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_stay_as_they_are() {
        let hashes = ["", "a", "per-user|user=ann"].map(hash);
        assert_eq!(hashes, [0xefd0_1f60_ba99_2926, 0x82a2_a958_a9be_ce5b, 0x2319_afa9_9695_f3c6]);
    }

    #[test]
    fn shares_are_what_they_say_and_grow_by_adding() {
        const NAMES: usize = 20_000;
        let names: Vec<String> = (0..NAMES).map(|number| format!("next|user={number}")).collect();
        let within = |share: f64| names.iter().filter(|name| contains(share, name)).count();
        for share in [0.001, 0.1, 0.5, 0.9] {
            let (found, expected) = (within(share) as f64, NAMES as f64 * share);
            // A tolerance of five standard deviations.
            assert!((found - expected).abs() < 5.0 * (expected * (1.0 - share)).sqrt(), "{share}: {found}");
        }
        assert_eq!((within(1.0), within(f64::MIN_POSITIVE)), (NAMES, 0));
        assert!(names.iter().all(|name| !contains(0.1, name) || contains(0.2, name)));
    }
}
