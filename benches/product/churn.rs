//! Stationary churn on one host: a new replica takes its ports, a random one gives its back.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use crate::chance::Chance;

/// Numbers that "any" draws from in the rows of one host: 12,000.
pub(crate) const DYNAMIC: RangeInclusive<u16> = 20_000..=31_999;

/// The ports of one host, for replicas of `K` single ports.
pub(crate) trait Ports<const K: usize> {
    /// What finds the ports of one replica again.
    type Taken: Copy;

    /// Takes `K` ports.
    fn take(&mut self) -> Option<Self::Taken>;

    /// Gives the ports of one replica back.
    fn give_back(&mut self, taken: Self::Taken);

    /// Holds one number for good.
    fn occupy(&mut self, number: u16);

    /// What is done between cycles.
    fn tidy(&mut self) {}
}

/// How the numbers of the host stand while its replicas come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// So many are live.
    Live(usize),
    /// Every second number is held for good, and what comes goes.
    Checkerboard,
}

impl Level {
    /// How many replicas of `each` ports come and go.
    pub(crate) const fn owners(self, each: usize) -> usize {
        match self {
            Self::Live(live) => live / each,
            Self::Checkerboard => 0,
        }
    }
}

/// A host with replicas that come and go.
pub(crate) struct Churn<P: Ports<K>, const K: usize> {
    pub(crate) ports: P,
    owners: Vec<P::Taken>,
    chance: Chance,
}

impl<P: Ports<K>, const K: usize> Churn<P, K> {
    /// The host at this level, after as much coming and going as it takes to scatter its holes.
    pub(crate) fn new(mut ports: P, level: Level) -> Self {
        let live = match level {
            Level::Live(live) => live,
            Level::Checkerboard => 0,
        };
        if level == Level::Checkerboard {
            DYNAMIC.step_by(2).for_each(|number| ports.occupy(number));
        }
        DYNAMIC
            .rev()
            .take(live % K)
            .for_each(|number| ports.occupy(number));
        let owners = (0..live / K).map(|_| ports.take().expect("the level leaves room"));
        let owners: Vec<P::Taken> = owners.collect();
        let turns = 4 * owners.len() as u32;
        let mut churn = Self {
            ports,
            owners,
            chance: Chance::new(live as u64),
        };
        churn.turn(turns);
        churn.ports.tidy();
        churn
    }

    /// Lets so many replicas come and go.
    pub(crate) fn turn(&mut self, times: u32) {
        for _ in 0..times {
            let taken = self.ports.take().expect("as many leave as come");
            // Whoever takes wants to know what.
            let taken = std::hint::black_box(taken);
            if self.owners.is_empty() {
                self.ports.give_back(taken);
                continue;
            }
            let place = self.chance.place(self.owners.len());
            let leaves = std::mem::replace(&mut self.owners[place], taken);
            self.ports.give_back(leaves);
        }
    }

    /// The same, and how long it took.
    pub(crate) fn clocked(&mut self, times: u32) -> Duration {
        let begun = Instant::now();
        self.turn(times);
        begun.elapsed()
    }

    /// Who is there.
    pub(crate) fn owners(&self) -> &[P::Taken] {
        &self.owners
    }

    /// The ports without their owners.
    pub(crate) fn into_ports(self) -> P {
        self.ports
    }
}
