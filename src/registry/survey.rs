//! What a look at the hosts found for one replica, and how it is told to a reader.
//!
//! A survey names every holder and says when rests end as moments, so that it is equal as long as nothing
//! changes. Only [`Survey::told`] turns it into words: for one reader, who may not see every holder, at one moment.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::host_addr::Prefix;
use crate::identity::{HostName, NetworkName, ReplicaId, ServiceName, Visibility};
use crate::port::PortRanges;
use crate::port_pool::{Cause, CauseCode, WhyPort};
use crate::rights::{Caller, Holding};
use crate::time::Monotonic;

use super::limits::LimitReached;
use super::reasons::{CauseSum, HostFit, HostSums, ReasonView};
use super::teller::Teller;

/// What the hosts that a profile's placement allows said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Survey {
    /// Hosts that are known, whatever the placement allows.
    pub(super) known: u32,
    /// Hosts that the placement allows.
    pub(super) eligible: u32,
    /// How many of them are in `fitting` and `by_code`.
    pub(super) asked: u32,
    pub(super) fitting: u32,
    /// The others by their first cause.
    pub(super) by_code: BTreeMap<Code, u32>,
    /// A limit of the owner or its group that leaves no room on any host.
    pub(super) limit: Option<LimitReached>,
    /// What is true of the whole request, before any host is looked at.
    pub(super) note: Option<String>,
    /// The first hosts by name, with their causes.
    pub(super) named: Vec<Surveyed>,
}

/// One host of a survey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Surveyed {
    pub(super) host: HostName,
    /// Nothing, if it fits.
    pub(super) against: Vec<Obstacle>,
    /// How many causes more there are.
    pub(super) left_out: usize,
}

/// One cause against one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Obstacle {
    pub(super) port: Option<WhyPort>,
    pub(super) cause: Obstruction,
    /// Who has the number.
    pub(super) holder: Option<Holder>,
    /// When a resting number is free.
    pub(super) until: Option<Monotonic>,
    /// What the host offers for such a port, where nothing of it will do.
    pub(super) offer: Option<Offer>,
}

/// What is in the way: what the allocator says, or what only placement knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Obstruction {
    /// By the allocator; a rest with a length of zero, see [`Obstacle::until`].
    Allocator(Cause),
    /// The host has a replica of a service that runs one on each.
    OnePerHost,
    /// A plugin gives the numbers of the host.
    OtherOwner,
    /// The host goes down in order: a `HOST DRAINED`.
    ShutsDown,
    /// The owner, or its group, holds as many numbers there as it may.
    Limit(Box<LimitReached>),
    /// The host has no address in the network that a port names: a `NO ADDRESS` for that port.
    NotInNetwork {
        /// Which.
        network: NetworkName,
        /// What it stands for; `None`: the controller does not have it any more.
        prefixes: Option<Vec<Prefix>>,
    },
}

/// The numbers that a host offers for a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) range: PortRanges,
    /// What the profile narrows them to, where that leaves none.
    pub(super) narrowed: Option<PortRanges>,
    /// Why there is none among them, where that was counted.
    pub(super) taken: Option<TakenOf>,
}

/// What has the numbers of a range in which there is none for a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TakenOf {
    /// How many are held.
    pub(super) held: u32,
    /// How many nobody has: other ports of the same replica need them, or who waits for them.
    pub(super) left: u32,
}

/// A replica that has a number, with what decides who may know that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) by: ReplicaId,
    pub(super) service: ServiceName,
    pub(super) index: u32,
    pub(super) owner: String,
    pub(super) groups: Vec<String>,
    pub(super) visibility: Visibility,
}

impl Holder {
    pub(super) fn holding(&self) -> Holding<'_> {
        Holding {
            owner: &self.owner,
            groups: &self.groups,
            visibility: &self.visibility,
        }
    }
}

/// A cause as a word; those of the allocator with their number in the C header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Code {
    Allocator(CauseCode),
    OnePerHost,
    OtherOwner,
    Limit,
}

/// A survey in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    /// Why there is no place, in one sentence.
    pub(super) sentence: String,
    /// The same in a few words.
    pub(super) short: String,
    pub(super) reasons: Vec<ReasonView>,
    pub(super) sums: HostSums,
}

impl Survey {
    /// The survey for one reader at one moment.
    pub(super) fn told(&self, reader: &Caller, now: Monotonic) -> Told {
        let teller = Teller { reader, now };
        let reasons = self.named.iter().flat_map(|at| teller.reasons(at));
        Told {
            sentence: self.sentence(&teller),
            short: self.short(&teller),
            reasons: reasons.collect(),
            sums: self.sums(),
        }
    }

    /// The named hosts, each with its causes.
    pub(super) fn hosts(&self, reader: &Caller, now: Monotonic) -> Vec<HostFit> {
        let teller = Teller { reader, now };
        let fit = |at: &Surveyed| HostFit {
            host: at.host.clone(),
            fits: at.against.is_empty(),
            reasons: teller.reasons(at).collect(),
            left_out: u32::try_from(at.left_out).unwrap_or(u32::MAX),
        };
        self.named.iter().map(fit).collect()
    }

    /// `2 of 5 hosts fit; 2 HELD, 1 HOST DRAINED`.
    pub(super) fn sum(&self) -> String {
        match &self.limit {
            Some(limit) => format!("LIMIT: {limit}; {}", self.sum_of_hosts()),
            None => self.sum_of_hosts(),
        }
    }

    fn sum_of_hosts(&self) -> String {
        if self.known == 0 {
            return "no host has reported yet; a host does once its agent runs".to_owned();
        }
        if self.eligible == 0 {
            let known = hosts(self.known);
            return format!("no host matches the profile's placement; {known} known");
        }
        let sums = counted(&self.by_code);
        let after = if sums.is_empty() {
            String::new()
        } else {
            format!("; {sums}")
        };
        let one = self.fitting == 1 || self.eligible == 1;
        let verb = if one { "fits" } else { "fit" };
        let hosts = hosts(self.eligible);
        if self.eligible < self.known {
            return format!(
                "{} of {hosts} that the placement allows {verb} ({} known){after}",
                self.fitting, self.known
            );
        }
        format!("{} of {hosts} {verb}{after}", self.fitting)
    }

    pub(super) fn sums(&self) -> HostSums {
        HostSums {
            known: self.known,
            hosts: self.eligible,
            asked: self.asked,
            fitting: self.fitting,
            causes: most_first(&self.by_code)
                .into_iter()
                .map(|(code, hosts)| CauseSum {
                    code: code.word().to_owned(),
                    code_number: code.number(),
                    hosts,
                })
                .collect(),
        }
    }

    fn sentence(&self, teller: &Teller<'_>) -> String {
        if let Some(limit) = &self.limit {
            return format!("LIMIT: {limit}");
        }
        if self.known == 0 {
            return "no host has reported yet; a host does once its agent runs".to_owned();
        }
        if self.eligible == 0 {
            return "no host matches the profile's placement".to_owned();
        }
        let mut sentences: Vec<String> = self.note.iter().cloned().collect();
        sentences.extend(self.named.iter().map(|at| teller.host(at)));
        sentences.extend(self.others());
        sentences.join("; ")
    }

    /// The hosts that are not named, summed.
    fn others(&self) -> Option<String> {
        let named = u32::try_from(self.named.len()).unwrap_or(u32::MAX);
        let more = self.eligible.checked_sub(named).filter(|more| *more > 0)?;
        if self.asked < self.eligible {
            let noun = if more == 1 { "host was" } else { "hosts were" };
            return Some(format!("{more} more {noun} not asked one by one"));
        }
        let mut rest = self.by_code.clone();
        let mut fitting = self.fitting;
        for at in &self.named {
            match at.against.first() {
                None => fitting = fitting.saturating_sub(1),
                Some(first) => {
                    let hosts = rest.entry(first.code()).or_default();
                    *hosts = hosts.saturating_sub(1);
                }
            }
        }
        rest.retain(|_, hosts| *hosts > 0);
        let sums = counted(&rest);
        if fitting > 0 {
            return Some(format!("{} more: {fitting} fit now, {sums}", hosts(more)));
        }
        let (noun, verb) = if more == 1 {
            ("host", "does")
        } else {
            ("hosts", "do")
        };
        Some(format!("{more} more {noun} {verb} not fit: {sums}"))
    }

    fn short(&self, teller: &Teller<'_>) -> String {
        if let Some(limit) = &self.limit {
            return format!("LIMIT: {limit}");
        }
        if self.known == 0 {
            return "no host has reported".to_owned();
        }
        match &self.named[..] {
            [] => "no host matches the placement".to_owned(),
            [only] if self.eligible == 1 => match only.against.split_first() {
                None => format!("{} fits now", only.host),
                Some((first, rest)) => {
                    let short = teller.short(&only.host, first);
                    match rest.len() + only.left_out {
                        0 => short,
                        more => format!("{short} and {more} more"),
                    }
                }
            },
            _ if self.asked < self.eligible => format!("none of {} fits", hosts(self.eligible)),
            _ => match self.example(teller) {
                Some(example) => format!("{example}; {}", self.sum()),
                None => self.sum(),
            },
        }
    }

    /// What is in the way on the first host where that is a port: the sum alone says not which.
    fn example(&self, teller: &Teller<'_>) -> Option<String> {
        let first = |at: &'_ Surveyed| at.against.first().is_some_and(|it| it.port.is_some());
        let at = self.named.iter().find(|at| first(at))?;
        Some(teller.short(&at.host, at.against.first()?))
    }
}

impl Obstacle {
    /// The code of the cause.
    pub(super) const fn code(&self) -> Code {
        match &self.cause {
            Obstruction::Allocator(cause) => Code::Allocator(cause.code()),
            Obstruction::OnePerHost => Code::OnePerHost,
            Obstruction::OtherOwner => Code::OtherOwner,
            Obstruction::ShutsDown => Code::Allocator(CauseCode::HostDrained),
            Obstruction::Limit(_) => Code::Limit,
            Obstruction::NotInNetwork { .. } => Code::Allocator(CauseCode::NoAddress),
        }
    }
}

impl Code {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Allocator(code) => code.as_str(),
            Self::OnePerHost => "ONE PER HOST",
            Self::OtherOwner => "OTHER OWNER",
            Self::Limit => "LIMIT",
        }
    }

    pub(super) const fn number(self) -> Option<u32> {
        match self {
            Self::Allocator(code) => Some(code.number()),
            Self::OnePerHost | Self::OtherOwner | Self::Limit => None,
        }
    }
}

/// Rounded up to whole seconds.
pub(super) fn whole_seconds(span: Duration) -> Duration {
    Duration::from_secs(span.as_secs() + u64::from(span.subsec_nanos() > 0))
}

fn hosts(count: u32) -> String {
    match count {
        1 => "1 host".to_owned(),
        many => format!("{many} hosts"),
    }
}

/// `2 HELD, 1 HOST DRAINED`.
fn counted(by_code: &BTreeMap<Code, u32>) -> String {
    let all = most_first(by_code).into_iter();
    let all: Vec<String> = all
        .map(|(code, hosts)| format!("{hosts} {}", code.word()))
        .collect();
    all.join(", ")
}

fn most_first(by_code: &BTreeMap<Code, u32>) -> Vec<(Code, u32)> {
    let mut all: Vec<(Code, u32)> = by_code
        .iter()
        .map(|(code, hosts)| (*code, *hosts))
        .collect();
    all.sort_by_key(|(code, hosts)| (std::cmp::Reverse(*hosts), *code));
    all
}
