//! How a site says which address is published.

use std::cmp::Reverse;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::port::excerpt;

use super::Reach;
use super::candidate::{Candidate, Scope};

/// How the published address is chosen. The default takes the interface of the default route.
///
/// Written as words separated by commas: an address is published as it stands; interfaces and networks
/// are tried in order; `!` excludes one, `*` ends a beginning of names; `ipv4` or `ipv6` is preferred:
/// `"10.20.0.0/16,!veth*,ipv4"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressRule {
    /// Published as it stands, whatever else is said.
    pub literal: Option<IpAddr>,
    /// The first of these that has a usable address wins; empty: every interface may.
    pub prefer: Vec<Selector>,
    /// Never chosen.
    pub exclude: Vec<Selector>,
    /// Preferred among addresses that are equal so far.
    pub family: Option<Family>,
}

/// Some of a host's addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Those of an interface and its aliases; a `*` at the end stands for any further letters.
    Interface(String),
    /// Those of a network.
    Network {
        /// Any address of it.
        address: IpAddr,
        /// Bits of the network part.
        prefix: u8,
    },
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl AddressRule {
    /// The most words of a rule.
    pub const MAX_WORDS: usize = 64;

    fn excludes(&self, candidate: &Candidate) -> bool {
        self.exclude.iter().any(|one| one.holds(candidate))
    }

    /// The best of these by rank; the first word that differs decides.
    pub(super) fn best<'a>(
        &self,
        candidates: impl Iterator<Item = &'a Candidate>,
    ) -> Option<&'a Candidate> {
        candidates.min_by_key(|candidate| {
            let address = candidate.address;
            (
                Reverse(candidate.default_route),
                // What a site asks for outweighs what is usual.
                self.family.is_some_and(|family| !family.holds(address)),
                candidate.scope(),
                address.is_ipv6(),
                // Nothing is left to prefer; names and numbers only make the choice the same each time.
                candidate.interface.as_str(),
                address,
            )
        })
    }
}

/// The published address among usable candidates, and the words for it.
pub(super) fn decide(
    usable: &[Candidate],
    rule: &AddressRule,
    reach: Reach,
) -> (Option<IpAddr>, String) {
    if let Some(literal) = rule.literal {
        return decide_literal("literal", usable, literal.to_canonical(), reach);
    }
    if reach == Reach::SingleHost {
        return (Some(Reach::LOOPBACK), "single host: loopback".to_owned());
    }
    let allowed = || usable.iter().filter(|one| !rule.excludes(one));
    if rule.prefer.is_empty()
        && let Some(best) = rule.best(allowed())
    {
        let words = if best.default_route {
            format!("default: {} carries the default route", best.interface)
        } else {
            format!(
                "default: {} has the first {} address, no allowed interface carries the default route",
                best.interface,
                best.scope()
            )
        };
        return (Some(best.address), words);
    }
    for selector in &rule.prefer {
        let found = allowed().filter(|candidate| selector.holds(candidate));
        if let Some(best) = rule.best(found) {
            let words = match selector {
                Selector::Interface(_) => selector.to_string(),
                Selector::Network { .. } => format!("{selector}: {}", best.interface),
            };
            return (Some(best.address), words);
        }
    }
    (None, nothing_found(usable, rule))
}

/// One address that `by` names, and the words for it.
pub(super) fn decide_literal(
    by: &str,
    usable: &[Candidate],
    literal: IpAddr,
    reach: Reach,
) -> (Option<IpAddr>, String) {
    if let Err(unfit) = Scope::of(literal).fitness(reach) {
        return (None, format!("{by} {literal} is not published: {unfit}"));
    }
    let holder = usable.iter().find(|candidate| candidate.address == literal);
    let place = match (holder, Scope::of(literal)) {
        (Some(holder), _) => holder.interface.as_str(),
        (None, Scope::Loopback) => "loopback",
        (None, _) => "on no interface of this host",
    };
    (Some(literal), format!("{by} {literal}: {place}"))
}

fn nothing_found(usable: &[Candidate], rule: &AddressRule) -> String {
    let named = |selectors: &[Selector], joint| {
        let names: Vec<String> = selectors.iter().map(Selector::to_string).collect();
        names.join(joint)
    };
    let mut words = "no usable address on ".to_owned();
    if rule.prefer.is_empty() {
        words += "this host";
    } else {
        words += &named(&rule.prefer, " or ");
    }
    if !rule.exclude.is_empty() {
        words += &format!(" outside {}", named(&rule.exclude, " and "));
    }
    if !usable.is_empty() {
        let there = usable
            .iter()
            .map(|one| format!("{} ({})", one.address, one.interface));
        words += &format!("; usable here: {}", there.collect::<Vec<_>>().join(", "));
    }
    words
}

impl Selector {
    /// Whether it selects this candidate.
    #[must_use]
    pub fn holds(&self, candidate: &Candidate) -> bool {
        match self {
            Self::Interface(name) => {
                let interface = candidate.interface.as_str();
                if let Some(beginning) = name.strip_suffix('*') {
                    return interface.starts_with(beginning);
                }
                let alias_of = interface.split_once(':').map(|(name, _)| name);
                interface == name || alias_of == Some(name)
            }
            Self::Network { address, prefix } => {
                network(*address, *prefix) == network(candidate.address, *prefix)
                    && address.is_ipv4() == candidate.address.is_ipv4()
            }
        }
    }
}

/// The first `prefix` bits of an address, the others cleared.
fn network(address: IpAddr, prefix: u8) -> u128 {
    let (bits, length) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let dropped = u32::from(u8::saturating_sub(length, prefix));
    // A prefix of 0 drops all 128 bits, which a plain shift refuses.
    bits.checked_shr(dropped).unwrap_or(0)
}

impl Family {
    const fn holds(self, address: IpAddr) -> bool {
        matches!(
            (self, address),
            (Self::V4, IpAddr::V4(_)) | (Self::V6, IpAddr::V6(_))
        )
    }
}

impl FromStr for AddressRule {
    type Err = ParseRuleError;

    fn from_str(text: &str) -> Result<Self, ParseRuleError> {
        let refuse = |word: &str, fault| ParseRuleError {
            word: excerpt(word),
            fault,
        };
        let mut rule = Self::default();
        if text.trim() == "default" {
            return Ok(rule);
        }
        if text.bytes().filter(|byte| *byte == b',').count() >= Self::MAX_WORDS {
            return Err(refuse(text, Fault::TooMany));
        }
        for word in text.split(',').map(str::trim) {
            if let Some(excluded) = word.strip_prefix('!') {
                let selector = selector(excluded).map_err(|fault| refuse(word, fault))?;
                rule.exclude.push(selector);
            } else if word == "ipv4" {
                rule.family = Some(Family::V4);
            } else if word == "ipv6" {
                rule.family = Some(Family::V6);
            } else if let Ok(literal) = word.parse() {
                if rule.literal.replace(literal).is_some() {
                    return Err(refuse(word, Fault::SecondLiteral));
                }
            } else {
                let selector = selector(word).map_err(|fault| refuse(word, fault))?;
                rule.prefer.push(selector);
            }
        }
        Ok(rule)
    }
}

fn selector(word: &str) -> Result<Selector, Fault> {
    if let Some((address, prefix)) = word.split_once('/') {
        let address: IpAddr = address.parse().map_err(|_| Fault::Network)?;
        let prefix: u8 = prefix.parse().map_err(|_| Fault::Network)?;
        if prefix > if address.is_ipv4() { 32 } else { 128 } {
            return Err(Fault::Network);
        }
        return Ok(Selector::Network { address, prefix });
    }
    if let Ok(address) = word.parse::<IpAddr>() {
        let prefix = if address.is_ipv4() { 32 } else { 128 };
        return Ok(Selector::Network { address, prefix });
    }
    // The kernel's own rule for names of interfaces, without `!` and `,`, which mean something here.
    let named = (1..=15).contains(&word.len())
        && word != "default"
        && word
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"/!,".contains(&byte));
    if named {
        Ok(Selector::Interface(word.to_owned()))
    } else {
        Err(Fault::Word)
    }
}

impl fmt::Display for AddressRule {
    /// The form that [`AddressRule::from_str`] reads back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = Vec::new();
        words.extend(self.literal.map(|literal| literal.to_string()));
        words.extend(self.prefer.iter().map(Selector::spelled));
        words.extend(self.exclude.iter().map(|one| format!("!{}", one.spelled())));
        words.extend(self.family.map(|family| match family {
            Family::V4 => "ipv4".to_owned(),
            Family::V6 => "ipv6".to_owned(),
        }));
        if words.is_empty() {
            return f.write_str("default");
        }
        f.write_str(&words.join(","))
    }
}

impl Selector {
    fn spelled(&self) -> String {
        match self {
            Self::Interface(name) => name.clone(),
            Self::Network { address, prefix } => format!("{address}/{prefix}"),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface(name) => write!(f, "interface {name}"),
            Self::Network { .. } => write!(f, "network {}", self.spelled()),
        }
    }
}

/// Not a rule for the published address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{word:?} {fault}; write an address, an interface, a network such as 10.20.0.0/16, !NAME to exclude one, ipv4 or ipv6, separated by commas"
)]
pub struct ParseRuleError {
    word: String,
    fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Fault {
    #[error("is no network")]
    Network,
    #[error("is no word of an address rule")]
    Word,
    #[error("is a second address; only one can be published")]
    SecondLiteral,
    #[error("has more than {} words", AddressRule::MAX_WORDS)]
    TooMany,
}
