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

/// How many hosts fit, and how many have each cause as their first: the numbers of a [`Summary`] alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CauseCounts {
    fitting: u32,
    /// By the number of the code.
    by_cause: [u32; CODES],
}

/// Above every number of a code.
const CODES: usize = {
    let (mut above, mut at) = (0, 0);
    while at < CauseCode::ALL.len() {
        let number = CauseCode::ALL[at].number() as usize;
        if number >= above {
            above = number + 1;
        }
        at += 1;
    }
    above
};

impl CauseCounts {
    /// How many hosts fit.
    #[must_use]
    pub const fn fitting(&self) -> u32 {
        self.fitting
    }

    /// How many hosts have this cause as their first.
    #[must_use]
    pub const fn of(&self, code: CauseCode) -> u32 {
        self.by_cause[code.number() as usize]
    }

    /// Counts one host: its first cause, or that it fits.
    pub const fn add(&mut self, first: Option<CauseCode>) {
        match first {
            Some(code) => self.by_cause[code.number() as usize] += 1,
            None => self.fitting += 1,
        }
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
