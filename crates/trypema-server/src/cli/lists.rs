//! `trypema lists`: values that are always blocked or always allowed.

use std::net::IpAddr;

use clap::Subcommand;
use http::Method;
use serde_json::{Value, json};

use super::confirm::{ChangeArgs, print_done, print_unchanged};
use super::difference::line;
use super::service::{AdminService, Call, percent_encode};
use super::{elements, print};
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
    Block(ListingArgs),
    /// Exempt every request that has a value from all rules: shows what changes, then applies it
    Allow(ListingArgs),
    /// Remove a value from both lists: shows what changes, then applies it
    Remove(ListingArgs),
}

/// A value, and the server to contact.
#[derive(Debug, clap::Args)]
pub(super) struct ListingArgs {
    /// The value and its attribute, as in `user=mallory`; `ip=` can be omitted, as in `203.0.113.0/24`
    #[arg(value_name = "ATTRIBUTE=VALUE")]
    entry: Entry,
    #[command(flatten)]
    change: ChangeArgs,
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

/// The lists, in the order in which they are shown.
const LISTS: [&str; 2] = ["block", "allow"];

impl Lists {
    pub(super) fn run(self) -> Result<(), String> {
        match self {
            Self::Show { service } => show(&service),
            Self::Block(listing) => listing.run(Some("block")),
            Self::Allow(listing) => listing.run(Some("allow")),
            Self::Remove(listing) => listing.run(None),
        }
    }
}

fn show(service: &AdminService) -> Result<(), String> {
    let lists = service.call(&Call::new(Method::GET, "/v1/lists"))?;
    for list in LISTS {
        for (attribute, values) in lists[list].as_object().into_iter().flatten() {
            for value in elements(values).filter_map(Value::as_str) {
                print(&line(&format!("{list} {attribute}={value}")));
            }
        }
    }
    Ok(())
}

impl ListingArgs {
    /// Adds the value to a list, or removes it from all lists.
    fn run(&self, add_to: Option<&str>) -> Result<(), String> {
        let Entry { attribute, value } = &self.entry;
        let lists = self.change.service.call(&Call::new(Method::GET, "/v1/lists"))?;
        let is_same = |listed: &str| canonical_value(attribute, listed) == *value;
        let is_on = |list: &&str| elements(&lists[list][attribute]).filter_map(Value::as_str).any(is_same);
        let listed: Vec<&str> = LISTS.into_iter().filter(is_on).collect();
        match add_to {
            Some(list) if listed.contains(&list) => {
                print_unchanged(None);
                Ok(())
            }
            Some(list) => self.make(Method::PUT, &[list]),
            None if listed.is_empty() => Err(format!("{attribute}={value} is on no list")),
            None => self.make(Method::DELETE, &listed),
        }
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
        if !self.change.ask(&changes, None)? {
            return Ok(());
        }
        for list in lists {
            let path = format!("/v1/lists/{list}/{}/{}", percent_encode(attribute), percent_encode(value));
            print_done(1, &self.change.service.call(&Call::new(method.clone(), &path))?);
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
