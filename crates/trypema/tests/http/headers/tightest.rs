//! The choice of the policy that the three `X-RateLimit` fields describe.

use std::time::Duration;

use http::HeaderMap;
use trypema::Decision;
use trypema::http::{HeaderStyle, Policy, QuotaUnit};

use super::{allowed, decided, denied, never};

/// The quota in `X-RateLimit-Limit`. It identifies the policy, because the quotas of a test differ.
fn shown(policies: &[(u64, Decision)]) -> u64 {
    let of =
        |(quota, decision)| Policy { name: "any", quota, window: None, unit: QuotaUnit::Spent, decision };
    let mut headers = HeaderMap::new();
    HeaderStyle::XRateLimit
        .write(policies.iter().map(|(quota, decision)| of((*quota, decision))), &mut headers);
    headers["x-ratelimit-limit"].to_str().unwrap().parse().unwrap()
}

/// Asserts that the policy with this quota is chosen, in either order.
fn is_tightest(quota: u64, policies: [(u64, Decision); 2]) {
    assert_eq!(shown(&policies), quota);
    let [one, other] = policies;
    assert_eq!(shown(&[other, one]), quota);
}

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_denial_comes_first() {
    // The first limit has 1 of 10 units left but denied a cost of 5. The second has none of 100 left.
    let denied = decided(10, (9, 5), MINUTE);
    is_tightest(10, [(10, denied), (100, allowed(100, 0, MINUTE))]);
}

#[test]
fn then_the_smallest_share() {
    is_tightest(100, [(10, allowed(10, 5, MINUTE)), (100, allowed(100, 49, MINUTE))]);
    // The shares differ by less than an `f64` can represent.
    let whole = (1 << 53) - 1;
    is_tightest(
        whole,
        [(whole, allowed(whole, whole - 2, MINUTE)), (whole - 1, allowed(whole, whole - 2, MINUTE))],
    );
}

#[test]
fn then_the_longest_wait() {
    is_tightest(20, [(10, allowed(10, 5, MINUTE)), (20, allowed(20, 10, MINUTE * 2))]);
    is_tightest(2, [(1, denied(MINUTE)), (2, denied(MINUTE * 2))]);
    // Waiting does not help a request that never fits.
    let never_with_nothing_left = decided(1, (1, 2), MINUTE);
    assert!(never_with_nothing_left.is_never());
    is_tightest(2, [(1, denied(MINUTE * 2)), (2, never_with_nothing_left)]);
}

#[test]
fn nothing_is_left_of_no_quota() {
    is_tightest(0, [(0, never()), (1, decided(1, (0, 2), MINUTE * 2))]);
}
