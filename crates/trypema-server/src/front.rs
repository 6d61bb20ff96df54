//! Front ends. Each translates requests of its protocol for the rules, and their verdicts back; none
//! contains decision logic.

pub(crate) mod http;
