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
//! A twin returns a table with the functions of its Rust file: `read` (the limit), `load`, `save`, `decide`, `commit`,
//! `available`, `refund`, `retention`, `recorded_time` and `encode_outcome`. Optional are `recorded_units`, `origin`,
//! `lease`, `record_denied_elsewhere`, `block_for`, `is_blocked`, and the flag `is_held` if its state is a table of
//! reservations.
//!
//! Redis runs a script from its first line in each call, so a function costs time even if it is not used. Each part is
//! therefore a branch of the function `define` and returns a function, or a table of functions; a call defines only the
//! parts that it needs. Names of numbers ([`LUA_NUMBERS`], `script/numbers.rs`) are replaced by the numbers, because a
//! local variable that functions use costs time, too.

mod numbers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use super::transport::Script;
use crate::strategy::{LUA_NUMBERS, LUA_PARTS, LUA_SOURCES, LuaPart, LuaSource};

const LOCALS: &str = include_str!("script/locals.lua");
const TIME: &str = include_str!("script/time.lua");
const SINGLE_HEAD: &str = include_str!("script/single/head.lua");
const SINGLE: &str = include_str!("script/single.lua");
const DRIVER_HEAD: &str = include_str!("script/driver/head.lua");
const INSTANCES: &str = include_str!("script/instances.lua");

/// The driver behind its parts. The functions for reservations use its local ones, so they are no part.
const DRIVER: &str = concat!(
    include_str!("script/requests.lua"),
    include_str!("script/require.lua"),
    include_str!("script/driver.lua"),
    "local function define_reservation_verbs()\n",
    include_str!("script/driver/reservations.lua"),
    "end\n",
    include_str!("script/driver/answer.lua"),
);

/// The parts that know no strategy.
const PARTS: [LuaPart; 5] = [
    LuaPart { name: "quick/lease", source: include_str!("script/quick/lease.lua") },
    LuaPart { name: "lease", source: include_str!("script/lease.lua") },
    LuaPart { name: "instances", source: INSTANCES },
    LuaPart { name: "state", source: include_str!("script/state.lua") },
    LuaPart { name: "take", source: include_str!("script/take.lua") },
];

/// Returns the script for takes of one cost from one key, for the strategy with this number.
pub(super) fn single(number: u8) -> Arc<Script> {
    static SINGLES: [OnceLock<Arc<Script>>; LUA_SOURCES.len()] =
        [const { OnceLock::new() }; LUA_SOURCES.len()];
    let index = usize::from(number - 1);
    let made = || Arc::new(Script::new(single_source(&LUA_SOURCES[index])));
    Arc::clone(SINGLES[index].get_or_init(made))
}

/// Returns the driver script, which runs any requests.
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
    let mut branches = Branches::default();
    branches.add("name == 'quick'", &of_strategy(lua, lua.quick));
    branches.add("name == 'strategy'", &of_strategy(lua, lua.source));
    branches.add_required_by(vec![SINGLE, lua.quick, lua.source]);
    assembled(SINGLE_HEAD, &branches, SINGLE)
}

fn driver_source(strategies: &[LuaSource]) -> String {
    let mut branches = Branches::default();
    let mut sources = vec![DRIVER];
    for (index, lua) in strategies.iter().enumerate() {
        let of_kinds = [
            ("quick", lua.quick),
            ("quick_refund", lua.quick_refund),
            ("quick_hold", lua.quick_hold),
            ("strategy", lua.source),
        ];
        for (name, source) in of_kinds {
            let condition = format!("name == '{name}' and number == {}", index + 1);
            branches.add(&condition, &of_strategy(lua, source));
            sources.push(source);
        }
    }
    branches.add_required_by(sources);
    assembled(DRIVER_HEAD, &branches, DRIVER)
}

/// Returns one of a strategy's sources with the letter of its states.
fn of_strategy(lua: &LuaSource, source: &str) -> String {
    source.replace("STATE_LETTER", &lua.letter.to_string())
}

/// The branches of the function that defines the parts.
#[derive(Debug, Default)]
struct Branches(String);

impl Branches {
    /// Adds a part, unless it is empty.
    fn add(&mut self, condition: &str, source: &str) {
        if !source.is_empty() {
            self.0.push_str(&format!("if {condition} then\n{source}\nend\n"));
        }
    }

    /// Adds the parts that these sources ask for, and those that these ask for in turn.
    fn add_required_by(&mut self, mut sources: Vec<&'static str>) {
        let parts = || LUA_PARTS.iter().chain(&PARTS);
        let mut required = BTreeSet::new();
        while let Some(source) = sources.pop() {
            let is_named = |part: &&LuaPart| source.contains(&format!("('{}')", part.name));
            let named = parts().filter(is_named).filter(|part| required.insert(part.name));
            sources.extend(named.map(|part| part.source));
        }
        for part in parts().filter(|part| required.contains(part.name)) {
            self.add(&format!("name == '{}'", part.name), part.source);
        }
    }
}

fn assembled(head: &str, Branches(branches): &Branches, main: &str) -> String {
    let defining = "local require\nlocal function define(name, number)";
    condensed(&[LOCALS, head, TIME, defining, branches, "end", main].join("\n"))
}

/// Returns the source without comments and indentation, and with the numbers in place of their names.
fn condensed(source: &str) -> String {
    let shared = LUA_NUMBERS.iter().map(|(name, number)| (*name, number.to_string()));
    // The answer of a usual case that is none.
    let mut names: BTreeMap<&str, String> = BTreeMap::from([("UNUSUAL", "nil".to_owned())]);
    names.extend(shared.chain(numbers::names()));
    let mut condensed = String::with_capacity(source.len());
    for line in source.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("--")) {
        let mut rest = line;
        while let Some(start) = rest.find(is_of_name) {
            let (before, from) = rest.split_at(start);
            let (name, after) = from.split_at(from.find(|c| !is_of_name(c)).unwrap_or(from.len()));
            condensed.push_str(before);
            condensed.push_str(names.get(name).map_or(name, String::as_str));
            rest = after;
        }
        condensed.push_str(rest);
        condensed.push('\n');
    }
    condensed
}

fn is_of_name(c: char) -> bool {
    c == '_' || c.is_ascii_alphanumeric()
}

/// Returns the part that only leases and heartbeats use, as scripts contain it.
#[cfg(test)]
pub(super) fn instances() -> String {
    condensed(INSTANCES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that no number replaced would be an undefined variable.
    #[test]
    fn every_name_of_a_number_is_replaced() {
        for script in script_sources() {
            let outside_strings = script.source.split('\'').step_by(2).collect::<Vec<_>>().join(" ");
            let is_constant =
                |name: &&str| name.len() > 2 && !name.contains(|c: char| c.is_ascii_lowercase());
            let mut names: BTreeSet<&str> =
                outside_strings.split(|c| !is_of_name(c)).filter(is_constant).collect();
            names.retain(|name| name.starts_with(|c: char| c.is_ascii_uppercase()));
            let is_known = |name: &str| {
                matches!(name, "KEYS" | "ARGV") || outside_strings.contains(&format!("local {name} ="))
            };
            let unknown: Vec<&&str> = names.iter().filter(|name| !is_known(name)).collect();
            assert!(unknown.is_empty(), "{}: {unknown:?}", script.name);
        }
    }
}
