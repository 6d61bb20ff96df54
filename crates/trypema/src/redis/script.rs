//! Assembles the scripts from the strategies' Lua twins.
//!
//! There are eight scripts: one per strategy, for a take of one cost from one key, which is nearly every call; and the
//! *driver*, for everything else. A script receives all names in `KEYS`, and one packed argument: the time (-1: the script
//! reads `TIME`, once) and the request.
//!
//! The driver receives a list of requests, each a list of checks. A request with one check can be any verb; one with
//! several is all or nothing. Takes, leases, reservations and settlements are answered in their usual case first, by
//! `strategy/quick/`. For all others the driver reads each state once, decides everything, and writes each changed state
//! once.
//!
//! A twin has the functions of its Rust file: `read` (the limit), `load`, `save`, `decide`, `commit`, `available`,
//! `refund`, `retention` and `encode_outcome`.

use std::sync::{Arc, OnceLock};

use super::transport::Script;
use crate::strategy::{LUA_SOURCES, LuaSource, RESERVATIONS};

const TIME: &str = include_str!("script/time.lua");
const STATE: &str = include_str!("script/state.lua");
const TAKE: &str = include_str!("script/take.lua");
const FIRST: &str = include_str!("script/first.lua");
const SINGLE: &str = include_str!("script/single.lua");
const REQUESTS: &str = include_str!("script/requests.lua");
pub(super) const INSTANCES: &str = include_str!("script/instances.lua");
const LEASE: &str = include_str!("script/lease.lua");
const DRIVER: &str = include_str!("script/driver.lua");
const DRIVER_RESERVATIONS: &str = include_str!("script/driver/reservations.lua");
const DRIVER_ANSWER: &str = include_str!("script/driver/answer.lua");

/// Returns the script for takes of one cost from one key, for the strategy with this number.
pub(super) fn single(number: u8) -> Arc<Script> {
    static SINGLES: [OnceLock<Arc<Script>>; LUA_SOURCES.len()] =
        [const { OnceLock::new() }; LUA_SOURCES.len()];
    let index = usize::from(number - 1);
    let made = || Arc::new(Script::new(single_source(&LUA_SOURCES[index])));
    Arc::clone(SINGLES[index].get_or_init(made))
}

/// Returns the driver script, which runs any requests. It defines a strategy's functions only when a
/// request needs them.
pub(super) fn driver() -> Arc<Script> {
    static SCRIPT: OnceLock<Arc<Script>> = OnceLock::new();
    Arc::clone(SCRIPT.get_or_init(|| Arc::new(Script::new(driver_source(&LUA_SOURCES)))))
}

/// One script, as Redis receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptSource {
    /// The name of the strategy whose takes the script runs, or `driver`.
    pub name: &'static str,
    /// The Lua source.
    pub source: String,
}

/// Returns every script of this version, for tests that store them.
pub fn script_sources() -> Vec<ScriptSource> {
    sources_of(&LUA_SOURCES)
}

/// Returns every script without the fast paths (`quick/*.lua`), to measure the time that the fast paths save.
pub fn script_sources_without_quick() -> Vec<ScriptSource> {
    sources_of(&LUA_SOURCES.map(LuaSource::without_quick))
}

fn sources_of(strategies: &[LuaSource]) -> Vec<ScriptSource> {
    let singles = strategies.iter().map(|lua| ScriptSource { name: lua.name, source: single_source(lua) });
    singles.chain([ScriptSource { name: "driver", source: driver_source(strategies) }]).collect()
}

fn single_source(lua: &LuaSource) -> String {
    let usual_case = [TIME, "local quick", lua.quick_base, lua.quick, FIRST];
    let otherwise = [STATE, lua.base, lua.source, TAKE, SINGLE];
    [usual_case.join("\n"), otherwise.join("\n")].join("\n")
}

fn driver_source(strategies: &[LuaSource]) -> String {
    // Each function costs time in every call of the script, so it is made when it is needed.
    let mut source = format!(
        "{TIME}\nlocal live_instances, share_of, lease_end, read_terms\nlocal function define_leases()\nif share_of then\n\
         return\nend\n{INSTANCES}\n{LEASE}\nend\n"
    );
    source.push_str("local function new_quick(number)\n");
    for (index, lua) in strategies.iter().enumerate().filter(|(_, lua)| !lua.quick.is_empty()) {
        let quick = [lua.quick_base, lua.quick].join("\n");
        source.push_str(&format!("if number == {} then\n{quick}\nreturn quick\nend\n", index + 1));
    }
    source.push_str("end\nlocal function new_quick_refund(number)\n");
    for (index, lua) in strategies.iter().enumerate().filter(|(_, lua)| !lua.quick_refund.is_empty()) {
        let (number, refund) = (index + 1, lua.quick_refund);
        source.push_str(&format!("if number == {number} then\n{refund}\nreturn quick_refund\nend\n"));
    }
    source.push_str("end\n");
    source.push_str(&format!("{REQUESTS}\n{STATE}\nlocal function reservations()\n{RESERVATIONS}\n"));
    source.push_str(
        "return {load = load_table, save = save_table, empty = empty_table, find = find_entry, held = held_at, \
         live = live_entries, insert = insert_entry, settle = settle_entry, renew = renew_entry, forget_expired = \
         forget_expired_entries, latest_expiry_at = latest_expiry_at, step_back = step_back, OPEN = OPEN, is_undone = is_undone, confirm = confirm_entry, \
         undo = undo_entry}\nend\n",
    );
    source.push_str("local strategies = {}\n");
    for (index, lua) in strategies.iter().enumerate() {
        let parts = [lua.base, lua.source, lua.lease, TAKE].join("\n");
        let (name, number) = (lua.name, index + 1);
        source.push_str(&format!("-- {name}\nstrategies[{number}] = function()\n"));
        source.push_str(&format!(
            "local record_denied_elsewhere, lease, block_for, is_blocked, recorded_units, origin\n{parts}\n"
        ));
        source.push_str(
            "return {read = read, load = load, save = save, decide = decide, commit = commit, take = take, \
             available = available, refund = refund, retention = retention, encode_outcome = encode_outcome, \
             record_denied_elsewhere = record_denied_elsewhere, lease = lease, block_for = block_for, \
             is_blocked = is_blocked, recorded_time = recorded_time, recorded_units = recorded_units, origin = origin}\nend\n",
        );
    }
    source.push_str(&[DRIVER, DRIVER_RESERVATIONS, DRIVER_ANSWER].join("\n"));
    source
}
