//! The workloads: the number of users, the number of rules, and the expected decision.

/// The number of users that take turns in the columns with many keys.
pub const USERS: u64 = 100_000;
/// The user in the columns with one key.
pub const HOT_USER: u64 = 7;
/// The window of every limit: a day.
pub const WINDOW_SECONDS: u64 = 86_400;
/// The number of requests that exhaust a scarce limit. The last of them is denied.
pub const TO_BE_KNOWN: u64 = SCARCE + 1;
/// A burst that no run exhausts, refilled too slowly to be full again between two requests.
const PLENTY: u64 = 1_000_000_000;
/// A limit that a user's first requests exhaust for longer than any run. (With a burst of one, throttlecrab
/// denies nothing.)
const SCARCE: u64 = 2;

/// One column of the table.
#[derive(Clone, Copy)]
pub struct Workload {
    pub title: &'static str,
    /// The number of rules that apply to each request.
    pub rules: usize,
    /// The number of users that take turns.
    pub users: u64,
    pub is_allowed: bool,
}

pub const WORKLOADS: [Workload; 8] = [
    Workload { title: "1 rule, hot key, allowed", rules: 1, users: 1, is_allowed: true },
    Workload { title: "1 rule, hot key, denied", rules: 1, users: 1, is_allowed: false },
    Workload { title: "1 rule, 100k keys, allowed", rules: 1, users: USERS, is_allowed: true },
    Workload { title: "1 rule, 100k keys, denied", rules: 1, users: USERS, is_allowed: false },
    Workload { title: "3 rules, hot key, allowed", rules: 3, users: 1, is_allowed: true },
    Workload { title: "3 rules, hot key, denied", rules: 3, users: 1, is_allowed: false },
    Workload { title: "3 rules, 100k keys, allowed", rules: 3, users: USERS, is_allowed: true },
    Workload { title: "3 rules, 100k keys, denied", rules: 3, users: USERS, is_allowed: false },
];

impl Workload {
    /// Returns the limit of a user per day.
    pub fn limit(&self) -> u64 {
        if self.is_allowed { PLENTY } else { SCARCE }
    }

    /// Returns our rules. The first one counts per user and is the one that denies. The others have keys that
    /// all requests share.
    pub fn rules_file(&self) -> String {
        let strategy = |name, limit| format!("{{{name}: {{limit: {limit}, window: {WINDOW_SECONDS}s}}}}");
        let rules = [
            format!("{{id: per-user, scope: user, strategy: {}}}", strategy("token_bucket", self.limit())),
            format!("{{id: per-address, scope: ip, strategy: {}}}", strategy("sliding_window", PLENTY)),
            format!("{{id: per-endpoint, scope: endpoint, strategy: {}}}", strategy("fixed_window", PLENTY)),
        ];
        let lines = rules[..self.rules].iter().map(|rule| format!("  - {rule}\n"));
        format!("rules:\n{}", lines.collect::<String>())
    }
}
