//! `trypema lists`: values that are always blocked or always allowed.

use std::net::IpAddr;
use std::process::ExitCode;

use clap::Subcommand;
use http::Method;
use serde_json::{Value, json};

use super::confirm::{Confirmation, print_done, print_unchanged};
use super::difference::line;
use super::service::{AdminService, Call, percent_encode};
use super::{failed, print};
use crate::rules::change::canonical_value;

/// Work with the allow list and the block list
#[derive(Debug, Subcommand)]
pub(super) enum Lists {
    /// Print the listed values
    Show {
        #[command(flatten)]
        service: AdminService,
    },
    /// Deny every request that has a value, on all servers: shows what changes, then applies it
    Block(Listing),
    /// Exempt every request that has a value from all rules: shows what changes, then applies it
    Allow(Listing),
    /// Remove a value from both lists: shows what changes, then applies it
    Remove(Listing),
}

/// A value, and the server to contact.
#[derive(Debug, clap::Args)]
pub(super) struct Listing {
    /// The value and its attribute, as in `user=mallory`; `ip=` can be omitted, as in `203.0.113.0/24`
    #[arg(value_name = "ATTRIBUTE=VALUE")]
    entry: Entry,
    #[command(flatten)]
    confirmation: Confirmation,
    #[command(flatten)]
    service: AdminService,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    attribute: String,
    value: String,
}

impl std::str::FromStr for Entry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = text.split('/').next().unwrap_or_default();
        let (attribute, value) = match text.split_once('=') {
            Some((attribute, value)) if !attribute.is_empty() && !value.is_empty() => (attribute, value),
            None if address.parse::<IpAddr>().is_ok() => ("ip", text),
            _ => return Err("need an attribute and a value, as in user=mallory, or an IP address".to_owned()),
        };
        Ok(Self { attribute: attribute.to_owned(), value: canonical_value(attribute, value) })
    }
}

impl Lists {
    pub(super) fn run(self) -> ExitCode {
        let done = match &self {
            Self::Show { service } => show(service),
            Self::Block(listing) => listing.add_to("block"),
            Self::Allow(listing) => listing.add_to("allow"),
            Self::Remove(listing) => listing.remove(),
        };
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                failed(error);
                ExitCode::FAILURE
            }
        }
    }
}

fn show(service: &AdminService) -> Result<(), String> {
    let lists = service.call(&Call::new(Method::GET, "/v1/lists"))?;
    for list in ["block", "allow"] {
        for (attribute, values) in lists[list].as_object().into_iter().flatten() {
            for value in values.as_array().into_iter().flatten().filter_map(Value::as_str) {
                print(&line(&format!("{list} {attribute}={value}")));
            }
        }
    }
    Ok(())
}

impl Listing {
    fn add_to(&self, list: &str) -> Result<(), String> {
        if self.is_on(list, &self.lists()?) {
            print_unchanged(None);
            return Ok(());
        }
        self.make(Method::PUT, &[list])
    }

    fn remove(&self) -> Result<(), String> {
        let lists = self.lists()?;
        let listed: Vec<&str> =
            ["block", "allow"].into_iter().filter(|list| self.is_on(list, &lists)).collect();
        if listed.is_empty() {
            let Entry { attribute, value } = &self.entry;
            return Err(format!("{attribute}={value} is on no list"));
        }
        self.make(Method::DELETE, &listed)
    }

    fn lists(&self) -> Result<Value, String> {
        self.service.call(&Call::new(Method::GET, "/v1/lists"))
    }

    fn is_on(&self, list: &str, lists: &Value) -> bool {
        let Entry { attribute, value } = &self.entry;
        let mut listed = lists[list][attribute].as_array().into_iter().flatten().filter_map(Value::as_str);
        listed.any(|listed| canonical_value(attribute, listed) == *value)
    }

    /// Shows the change of these lists, then makes it.
    fn make(&self, method: Method, lists: &[&str]) -> Result<(), String> {
        let Entry { attribute, value } = &self.entry;
        let change = |list: &&str| {
            let entry = json!({"list": list, "attribute": attribute, "value": value});
            let (before, after) =
                if method == Method::PUT { (Value::Null, entry) } else { (entry, Value::Null) };
            json!({"kind": "list", "name": format!("{list} {attribute} {value}"), "before": before, "after": after})
        };
        let changes: Vec<Value> = lists.iter().map(change).collect();
        if !self.confirmation.ask(&changes.iter().collect::<Vec<_>>(), None)? {
            return Ok(());
        }
        for list in lists {
            let path = format!("/v1/lists/{list}/{}/{}", percent_encode(attribute), percent_encode(value));
            print_done(1, &self.service.call(&Call::new(method.clone(), &path))?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_name_their_attribute_or_are_addresses() {
        for (text, attribute, value) in [
            ("user=mallory", "user", "mallory"),
            ("user=a=b", "user", "a=b"),
            ("10.0.0.0/8", "ip", "10.0.0.0/8"),
            ("::ffff:10.0.0.1", "ip", "10.0.0.1"),
            ("ip=2001:DB8::1", "ip", "2001:db8::1"),
        ] {
            let entry = Entry { attribute: attribute.to_owned(), value: value.to_owned() };
            assert_eq!(text.parse::<Entry>(), Ok(entry), "{text}");
        }
        for text in ["mallory", "=mallory", "user=", "", "10.0.0"] {
            assert!(text.parse::<Entry>().unwrap_err().contains("user=mallory"), "{text}");
        }
    }
}
