//! Numbers that waiting requests name: "any" leaves them alone.

use std::collections::BTreeMap;

use super::{PortRequest, Side, Want};

/// A counted set of awaited numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Awaited(BTreeMap<(Side, u16), u32>);

impl Awaited {
    /// Adds the fixed numbers of `request`.
    pub fn add(&mut self, request: &PortRequest) {
        for place in fixed(request) {
            *self.0.entry(place).or_default() += 1;
        }
    }

    /// Takes the fixed numbers of `request`, which was added before, away again.
    pub fn remove(&mut self, request: &PortRequest) {
        for place in fixed(request) {
            if let Some(count) = self.0.get_mut(&place) {
                *count -= 1;
                if *count == 0 {
                    self.0.remove(&place);
                }
            }
        }
    }

    /// How many numbers are awaited, those of both sides counted twice.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nobody waits for any number.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether somebody waits for the number.
    #[must_use]
    pub fn contains(&self, side: Side, number: u16) -> bool {
        !self.0.is_empty() && self.0.contains_key(&(side, number))
    }
}

fn fixed(request: &PortRequest) -> impl Iterator<Item = (Side, u16)> + '_ {
    request.as_slice().iter().flat_map(|port| {
        let number = match port.want {
            Want::Fixed(number) => Some(number.number()),
            Want::Any { .. } => None,
        };
        number
            .into_iter()
            .flat_map(move |number| Side::of(port.protocol).map(move |side| (side, number)))
    })
}
