//! Sets of networks, searched by bisection.

use super::address::CanonicalNetwork;

/// A sorted set of networks that do not overlap: networks inside another one are left out. A lookup takes
/// logarithmic time.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Networks(Box<[CanonicalNetwork]>);

impl FromIterator<CanonicalNetwork> for Networks {
    fn from_iter<I: IntoIterator<Item = CanonicalNetwork>>(networks: I) -> Self {
        let mut sorted: Vec<CanonicalNetwork> = networks.into_iter().collect();
        // The order puts a network directly before all networks inside it.
        sorted.sort_unstable();
        let mut outer: Vec<CanonicalNetwork> = Vec::with_capacity(sorted.len());
        for network in sorted {
            if !outer.last().is_some_and(|last| last.covers(network)) {
                outer.push(network);
            }
        }
        Self(outer.into())
    }
}

impl Networks {
    /// Returns the network that covers all of `client`.
    pub(super) fn covering(&self, client: CanonicalNetwork) -> Option<CanonicalNetwork> {
        let after = self.0.partition_point(|network| network.first() <= client.first());
        let before = self.0.get(after.checked_sub(1)?)?;
        before.covers(client).then_some(*before)
    }

    /// Returns a network that has an address in common with `client`.
    pub(super) fn meeting(&self, client: CanonicalNetwork) -> Option<CanonicalNetwork> {
        let after = self.0.partition_point(|network| network.first() < client.first());
        let within = || self.0.get(after).filter(|network| client.covers(**network)).copied();
        self.covering(client).or_else(within)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Networks with few distinct bits, so that they often contain each other.
    fn any_network() -> impl Strategy<Value = CanonicalNetwork> {
        let v4 = (any::<[bool; 4]>(), 0_u8..=32).prop_map(|(bits, prefix)| {
            let byte = |bit: bool| if bit { 255 } else { 10 };
            format!("{}.{}.{}.{}/{prefix}", byte(bits[0]), byte(bits[1]), byte(bits[2]), byte(bits[3]))
        });
        let v6 = (0_u16..4, 0_u16..4, 0_u16..4, 0_u8..=128)
            .prop_map(|(one, two, last, prefix)| format!("200{one}:db{two}::{last}/{prefix}"));
        let text = prop_oneof![v4, v6, Just("::/0".to_owned()), Just("0.0.0.0/0".to_owned())];
        text.prop_map(|text| CanonicalNetwork::parse(&text).unwrap_or_else(|| panic!("{text}")))
    }

    proptest! {
        #[test]
        fn a_set_answers_as_a_scan_of_all_networks_does(
            listed in proptest::collection::vec(any_network(), 0..40),
            clients in proptest::collection::vec(any_network(), 1..20),
        ) {
            let set: Networks = listed.iter().copied().collect();
            for client in clients.iter().chain(&listed) {
                let is_covered = listed.iter().any(|network| network.covers(*client));
                let is_met = listed.iter().any(|network| network.meets(*client));
                prop_assert_eq!(set.covering(*client).is_some(), is_covered, "{:?}", client);
                prop_assert!(set.covering(*client).is_none_or(|network| listed.contains(&network)));
                prop_assert_eq!(set.meeting(*client).is_some(), is_met, "{:?}", client);
                prop_assert!(set.meeting(*client).is_none_or(|network| network.meets(*client)));
            }
        }
    }
}
