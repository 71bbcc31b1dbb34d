//! Why a request pends, summed over hosts.

use std::collections::BTreeMap;
use std::fmt;

use crate::identity::HostId;
use crate::port_pool::{CauseCode, Why};

/// How many hosts fit, and what the first cause against each of the others is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Hosts that fit.
    pub fitting: u32,
    /// Hosts by their first cause.
    pub by_cause: BTreeMap<CauseCode, u32>,
    /// For each cause the lowest host that has it first, with the cause whole.
    pub examples: BTreeMap<CauseCode, (HostId, Why)>,
}

impl Summary {
    /// How many hosts were asked.
    #[must_use]
    pub fn asked(&self) -> u32 {
        self.fitting + self.by_cause.values().sum::<u32>()
    }

    pub(super) fn add(&mut self, host: HostId, first: Option<Why>) {
        let Some(why) = first else {
            self.fitting += 1;
            return;
        };
        let code = why.cause.code();
        *self.by_cause.entry(code).or_default() += 1;
        self.examples.entry(code).or_insert((host, why));
    }
}

/// `0 of 3 hosts fit: 2 HELD, 1 HOST DRAINED`.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} hosts fit", self.fitting, self.asked())?;
        for (place, (code, hosts)) in self.by_cause.iter().enumerate() {
            let before = if place == 0 { ": " } else { ", " };
            write!(f, "{before}{hosts} {code}")?;
        }
        Ok(())
    }
}
