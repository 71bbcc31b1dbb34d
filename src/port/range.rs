//! Consecutive ports, and sets of them as people write them.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{ParsePortError, Port, excerpt};

/// Consecutive ports, both ends included; never empty, never reversed.
///
/// As JSON a single port is its number, a longer range `{"first": …, "last": …}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "RangeForm", into = "RangeForm")]
pub struct PortRange {
    first: Port,
    last: Port,
}

impl PortRange {
    /// The ports `first` to `last`, or `None` if they are reversed.
    #[must_use]
    pub fn new(first: Port, last: Port) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// The range of this one port.
    #[must_use]
    pub const fn single(port: Port) -> Self {
        Self {
            first: port,
            last: port,
        }
    }

    /// The lowest port.
    #[must_use]
    pub const fn first(self) -> Port {
        self.first
    }

    /// The highest port.
    #[must_use]
    pub const fn last(self) -> Port {
        self.last
    }

    /// How many ports it holds, 1 to 65535.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.last.number() as u32 - self.first.number() as u32 + 1
    }

    /// Whether `port` lies inside.
    #[must_use]
    pub fn contains(self, port: Port) -> bool {
        self.first <= port && port <= self.last
    }

    /// Every port, ascending.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Port> {
        (self.first.number()..=self.last.number()).filter_map(Port::new)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            self.first.fmt(f)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

/// How a [`PortRange`] is written.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum RangeForm {
    Single(Port),
    Range { first: Port, last: Port },
}

impl From<PortRange> for RangeForm {
    fn from(range: PortRange) -> Self {
        if range.first == range.last {
            return Self::Single(range.first);
        }
        Self::Range {
            first: range.first,
            last: range.last,
        }
    }
}

impl TryFrom<RangeForm> for PortRange {
    type Error = ParsePortRangesError;

    fn try_from(form: RangeForm) -> Result<Self, ParsePortRangesError> {
        match form {
            RangeForm::Single(port) => Ok(Self::single(port)),
            RangeForm::Range { first, last } => {
                Self::new(first, last).ok_or_else(|| ParsePortRangesError {
                    text: format!("{first}-{last}"),
                    reason: RangesFault::Reversed,
                })
            }
        }
    }
}

/// A set of ports as people write it: ranges in ascending order that neither touch nor overlap.
#[derive(Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PortRanges(Vec<PortRange>);

impl Clone for PortRanges {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }

    /// Without allocating, where the room is enough.
    fn clone_from(&mut self, source: &Self) {
        self.0.clone_from(&source.0);
    }
}

impl PortRanges {
    /// The most ranges one text may name; more is refused before anything is allocated for them.
    pub const MAX_RANGES: usize = 1024;

    /// The union of `ranges`: sorted, overlaps and neighbours merged.
    #[must_use]
    pub fn new(ranges: impl IntoIterator<Item = PortRange>) -> Self {
        let mut sorted: Vec<_> = ranges.into_iter().collect();
        sorted.sort_unstable();
        let mut merged: Vec<PortRange> = Vec::with_capacity(sorted.len());
        for range in sorted {
            match merged.last_mut() {
                Some(last) if range.first.number() <= last.last.number().saturating_add(1) => {
                    last.last = last.last.max(range.last);
                }
                _ => merged.push(range),
            }
        }
        Self(merged)
    }

    /// The ranges, ascending.
    #[must_use]
    pub fn as_slice(&self) -> &[PortRange] {
        &self.0
    }

    /// Whether it holds no port.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many ports it holds.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|range| range.count()).sum()
    }

    /// The longest run of consecutive ports, the lowest of equals; `None` if it is empty.
    #[must_use]
    pub fn longest(&self) -> Option<PortRange> {
        let ranges = self.0.iter().rev().copied();
        ranges.max_by_key(|range| range.count())
    }

    /// Whether `port` lies inside. Cost: one binary search.
    #[must_use]
    pub fn contains(&self, port: Port) -> bool {
        let after = self.0.partition_point(|range| range.first <= port);
        after > 0 && self.0[after - 1].contains(port)
    }

    /// The ports in both sets. Cost: one walk over the ranges of both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (mut ours, mut theirs) = (self.0.as_slice(), other.0.as_slice());
        let mut common = Vec::new();
        while let ([a, ..], [b, ..]) = (ours, theirs) {
            common.extend(PortRange::new(a.first.max(b.first), a.last.min(b.last)));
            if a.last <= b.last {
                ours = &ours[1..];
            } else {
                theirs = &theirs[1..];
            }
        }
        Self(common)
    }

    /// The ports of this set that are not in `other`. Cost: one walk over the ranges of both.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        let mut theirs = other.0.as_slice();
        for ours in &self.0 {
            let below = theirs.partition_point(|hole| hole.last < ours.first);
            theirs = &theirs[below..];
            let mut next = Some(ours.first);
            for hole in theirs.iter().take_while(|hole| hole.first <= ours.last) {
                let before = Port::new(hole.first.number() - 1);
                left.extend(next.zip(before).and_then(|(a, b)| PortRange::new(a, b)));
                next = hole.last.number().checked_add(1).and_then(Port::new);
            }
            left.extend(next.and_then(|next| PortRange::new(next, ours.last)));
        }
        Self(left)
    }

    /// This set in `shares` parts, ascending, none of them larger than another by more than one; parts are empty
    /// where there are fewer ports than parts.
    #[must_use]
    pub fn split(&self, shares: NonZeroU16) -> Vec<Self> {
        let mut left = self.clone();
        (0..shares.get())
            .map(|taken| {
                let share = left.count().div_ceil(u32::from(shares.get() - taken));
                let mut room = share;
                let mut part = Vec::new();
                for range in &left.0 {
                    let last = u32::from(range.first.number()) + range.count().min(room);
                    // Without room the end lies before the beginning, which is no range.
                    let last = u16::try_from(last - 1).ok().and_then(Port::new);
                    let taken = last.and_then(|last| PortRange::new(range.first, last));
                    room -= taken.map_or(0, PortRange::count);
                    part.extend(taken);
                }
                let part = Self(part);
                left = left.difference(&part);
                part
            })
            .collect()
    }

    /// Every port, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Port> {
        self.0.iter().flat_map(|range| range.iter())
    }
}

impl fmt::Display for PortRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, range) in self.0.iter().enumerate() {
            if place > 0 {
                f.write_str(",")?;
            }
            range.fmt(f)?;
        }
        Ok(())
    }
}

impl From<PortRanges> for String {
    fn from(ranges: PortRanges) -> Self {
        ranges.to_string()
    }
}

impl TryFrom<String> for PortRanges {
    type Error = ParsePortRangesError;

    fn try_from(text: String) -> Result<Self, ParsePortRangesError> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        text.parse()
    }
}

impl FromStr for PortRanges {
    type Err = ParsePortRangesError;

    /// Reads `"80, 100-120"` or `"below 32768"`: numbers and ranges separated by commas, blanks
    /// around them allowed.
    fn from_str(text: &str) -> Result<Self, ParsePortRangesError> {
        let refuse = |reason| ParsePortRangesError {
            text: excerpt(text),
            reason,
        };
        if text.bytes().filter(|byte| *byte == b',').count() >= Self::MAX_RANGES {
            return Err(refuse(RangesFault::TooMany));
        }
        if let Some(limit) = text.trim().strip_prefix("below ") {
            let limit: Port = limit
                .trim()
                .parse()
                .map_err(|cause| refuse(RangesFault::Port(cause)))?;
            let last = Port::new(limit.number() - 1).ok_or_else(|| refuse(RangesFault::Empty))?;
            return Ok(Self(vec![PortRange {
                first: Port::MIN,
                last,
            }]));
        }
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (first.trim(), last.trim()),
                None => (part.trim(), part.trim()),
            };
            if first.is_empty() && last.is_empty() {
                return Err(refuse(RangesFault::Empty));
            }
            let port = |text: &str| {
                text.parse::<Port>()
                    .map_err(|cause| refuse(RangesFault::Port(cause)))
            };
            let range = PortRange::new(port(first)?, port(last)?);
            ranges.push(range.ok_or_else(|| refuse(RangesFault::Reversed))?);
        }
        Ok(Self::new(ranges))
    }
}

/// Not a set of ports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} names no set of ports: {reason}; write for example \"80,100-120\" or \"below 32768\""
)]
pub struct ParsePortRangesError {
    text: String,
    reason: RangesFault,
}

/// What is wrong with a range text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum RangesFault {
    #[error("{0}")]
    Port(ParsePortError),
    #[error("a range has no ports")]
    Empty,
    #[error("a range is reversed")]
    Reversed,
    #[error("more than {} ranges", PortRanges::MAX_RANGES)]
    TooMany,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Ranges that touch each other and both ends.
    fn set() -> impl Strategy<Value = PortRanges> {
        let first = prop_oneof![1u16..40, 65_476u16..=65_535];
        // Built in order, not filtered: nothing is rejected however many are drawn.
        let range = (first, 0u16..60).prop_map(|(first, more)| {
            let last = Port::new(first.saturating_add(more)).unwrap();
            PortRange::new(Port::new(first).unwrap(), last).unwrap()
        });
        proptest::collection::vec(range, 0..12).prop_map(PortRanges::new)
    }

    fn ranges(text: &str) -> Option<String> {
        text.parse::<PortRanges>().ok().map(|set| set.to_string())
    }

    #[test]
    fn a_set_is_split_into_equal_parts_in_order() {
        let split = |text: &str, shares| -> Vec<String> {
            let set: PortRanges = text.parse().unwrap();
            let shares = NonZeroU16::new(shares).unwrap();
            set.split(shares)
                .iter()
                .map(PortRanges::to_string)
                .collect()
        };
        assert_eq!(split("20000-32767", 2), ["20000-26383", "26384-32767"]);
        assert_eq!(split("1,5-6,9", 3), ["1,5", "6", "9"]);
        assert_eq!(split("1-65535", 1), ["1-65535"]);
        assert_eq!(split("80", 2), ["80", ""]);
    }

    #[test]
    fn range_text_is_merged_and_sorted() {
        // ports 8
        assert_eq!(ranges("1-3,2-4").as_deref(), Some("1-4"));
        assert_eq!(ranges("2-4,1-3").as_deref(), Some("1-4"));
        assert_eq!(ranges(" 80 , 100-120").as_deref(), Some("80,100-120"));
        assert_eq!(ranges("below 1024").as_deref(), Some("1-1023"));
    }

    #[test]
    fn reversed_empty_and_huge_range_texts_are_refused() {
        // ports 8
        for bad in [
            "3-1",
            "1-65537",
            "9223372036854775807",
            "1-65536",
            "",
            ",",
            "80,",
            "-",
            "1--2",
            "below 1",
            "below",
        ] {
            assert_eq!(ranges(bad), None, "{bad:?} was accepted");
        }
        let long = "1,".repeat(1_000_000);
        let message = long.parse::<PortRanges>().unwrap_err().to_string();
        assert!(message.len() < 300, "{message}");
    }

    #[test]
    fn a_set_contains_exactly_its_ports() {
        let set: PortRanges = "80,100-102".parse().unwrap();
        let inside: Vec<_> = (1..=200)
            .filter(|n| set.contains(Port::new(*n).unwrap()))
            .collect();
        assert_eq!(inside, [80, 100, 101, 102]);
        assert_eq!(set.count(), 4);
        assert_eq!(set.iter().count(), 4);
    }

    proptest! {
        #[test]
        fn parts_are_disjoint_of_equal_size_and_together_the_whole(set in set(), shares in 1u16..20) {
            let parts = set.split(NonZeroU16::new(shares).unwrap());
            prop_assert_eq!(parts.len(), usize::from(shares));
            let counts: Vec<u32> = parts.iter().map(PortRanges::count).collect();
            prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
            prop_assert_eq!(counts.iter().sum::<u32>(), set.count());
            prop_assert_eq!(PortRanges::new(parts.iter().flat_map(|part| part.0.clone())), set);
        }

        #[test]
        fn the_longest_run_is_the_first_of_the_longest(a in set()) {
            let longest = a.as_slice().iter().map(|range| range.count()).max();
            let first = a.as_slice().iter().find(|range| Some(range.count()) == longest);
            prop_assert_eq!(a.longest(), first.copied());
        }

        #[test]
        fn a_difference_holds_the_ports_of_the_first_alone(a in set(), b in set()) {
            let left = a.difference(&b);
            let expected = a.iter().filter(|port| !b.contains(*port));
            prop_assert_eq!(&left, &PortRanges::new(expected.map(PortRange::single)));
        }

        #[test]
        fn an_intersection_holds_the_ports_of_both_and_no_others(a in set(), b in set()) {
            let common = a.intersection(&b);
            let both: Vec<_> = a.iter().filter(|port| b.contains(*port)).collect();
            prop_assert_eq!(common.iter().collect::<Vec<_>>(), both);
            // In the form that every set has: sorted, neighbours merged.
            prop_assert_eq!(PortRanges::new(common.as_slice().iter().copied()), common);
        }
    }

    #[test]
    fn a_range_in_json_is_a_number_or_two_ends_in_order() {
        let read = |text: &str| serde_json::from_str::<PortRange>(text).ok();
        assert_eq!(read("80").unwrap().to_string(), "80");
        assert_eq!(
            read(r#"{"first":80,"last":82}"#).unwrap().to_string(),
            "80-82"
        );
        assert_eq!(read(r#"{"first":82,"last":80}"#), None);
        assert_eq!(read("0"), None);
        let single = PortRange::single(Port::MAX);
        assert_eq!(serde_json::to_string(&single).unwrap(), "65535");
    }
}
