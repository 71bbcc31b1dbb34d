//! Lists of hosts as Slurm writes them: `n[01-16,20],login1`.

use crate::identity::HostName;
use crate::port::excerpt;

/// The most hosts one list may name.
pub(super) const MOST: usize = 16_384;
/// The longest list in bytes.
pub(super) const LONGEST: usize = 262_144;
/// The most brackets in one name, and the longest text beside them: both multiply with the hosts.
const MOST_BRACKETS: usize = 8;
const LONGEST_NAME: usize = 253;

/// Every host of a list, in the order written, each once.
///
/// # Errors
///
/// [`HostListError`] with the part that is wrong; nothing is expanded beyond 16,384 names.
pub fn expand(text: &str) -> Result<Vec<HostName>, HostListError> {
    if text.len() > LONGEST {
        return Err(HostListError::TooMany);
    }
    let mut hosts = Vec::new();
    for part in split_outside_brackets(text)? {
        let part = part.trim();
        let mut names = vec![String::new()];
        let mut rest = part;
        if part.matches('[').count() > MOST_BRACKETS {
            let part = excerpt(part);
            return Err(HostListError::Bracket { part });
        }
        while let Some((before, after)) = rest.split_once('[') {
            let open = || HostListError::Bracket {
                part: excerpt(part),
            };
            let (inside, after) = after.split_once(']').ok_or_else(open)?;
            let numbers = numbers(inside, MOST)?;
            if before.len() > LONGEST_NAME {
                let name = excerpt(before);
                return Err(HostListError::Name { name });
            }
            if names.len().saturating_mul(numbers.len()) > MOST {
                return Err(HostListError::TooMany);
            }
            let grown = names.iter().flat_map(|name| {
                numbers
                    .iter()
                    .map(move |number| format!("{name}{before}{number}"))
            });
            names = grown.collect();
            rest = after;
        }
        if rest.len() > LONGEST_NAME {
            let name = excerpt(rest);
            return Err(HostListError::Name { name });
        }
        for name in names {
            let name = name + rest;
            let host = name.parse().map_err(|_| HostListError::Name {
                name: excerpt(&name),
            })?;
            if hosts.len() >= MOST {
                return Err(HostListError::TooMany);
            }
            hosts.push(host);
        }
    }
    Ok(hosts)
}

/// The shortest list of this kind for these hosts: runs of numbers of one width are folded.
pub(super) fn fold(hosts: &[HostName]) -> Vec<String> {
    let mut lists: Vec<String> = Vec::new();
    let mut place = 0;
    while place < hosts.len() {
        let (stem, first) = split_number(hosts[place].as_str());
        let width = hosts[place].as_str().len() - stem.len();
        let follows = |run: usize| {
            let next = hosts
                .get(place + run)
                .map(|host| split_number(host.as_str()));
            let wanted = first.and_then(|first| first.checked_add(run as u64));
            let same_width = wanted.is_some_and(|n| format!("{n:0width$}").len() == width);
            same_width
                && next == Some((stem, wanted))
                && hosts[place + run].as_str().len() == stem.len() + width
        };
        let mut run = 1;
        while follows(run) {
            run += 1;
        }
        match first {
            Some(first) if run > 1 => {
                let last = first + run as u64 - 1;
                lists.push(format!("{stem}[{first:0width$}-{last:0width$}]"));
            }
            _ => lists.push(hosts[place].to_string()),
        }
        place += run;
    }
    lists
}

/// A name without its last digits, and their number.
fn split_number(name: &str) -> (&str, Option<u64>) {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (stem, digits) = name.split_at(name.len() - digits.min(MAX_DIGITS));
    (stem, digits.parse().ok())
}

const MAX_DIGITS: usize = 9;

fn split_outside_brackets(text: &str) -> Result<Vec<&str>, HostListError> {
    let mut parts = Vec::new();
    let mut inside = false;
    let mut start = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' | b']' if inside == (byte == b'[') => {
                let part = excerpt(&text[start..]);
                return Err(HostListError::Bracket { part });
            }
            b'[' => inside = true,
            b']' => inside = false,
            b',' if !inside => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    Ok(parts)
}

/// The numbers of `01-16,20`, with their leading zeros.
fn numbers(text: &str, most: usize) -> Result<Vec<String>, HostListError> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let wrong = || HostListError::Numbers {
            part: excerpt(part),
        };
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim(), last.trim());
        let number = |text: &str| {
            let plain = (1..=MAX_DIGITS).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_digit());
            plain
                .then(|| text.parse::<u64>().ok())
                .flatten()
                .ok_or_else(wrong)
        };
        let (from, to) = (number(first)?, number(last)?);
        // `[1-016]` and `[001-2]` could mean either width.
        let widths_differ = first.len() != last.len();
        if from > to || first.len() > last.len() || widths_differ && last.starts_with('0') {
            return Err(wrong());
        }
        if to - from >= (most - numbers.len()) as u64 {
            return Err(HostListError::TooMany);
        }
        let width = first.len();
        numbers.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}

/// Why a text is no list of hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostListError {
    /// Brackets that do not pair, stand in each other, or are too many.
    #[error("the brackets of {part:?} do not pair, or are more than {MOST_BRACKETS}")]
    Bracket {
        /// The part.
        part: String,
    },
    /// Not a number or a range of numbers.
    #[error("{part:?} is no number or range of numbers")]
    Numbers {
        /// The part.
        part: String,
    },
    /// Not a host name.
    #[error("{name:?} is no host name")]
    Name {
        /// What is written instead.
        name: String,
    },
    /// Too many.
    #[error("it names more than {MOST} hosts")]
    TooMany,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(text: &str) -> Vec<String> {
        let hosts = expand(text).unwrap();
        hosts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_list_is_expanded_with_its_leading_zeros() {
        assert_eq!(names("n[08-11]"), ["n08", "n09", "n10", "n11"]);
        assert_eq!(names("n[1,3-4], login1"), ["n1", "n3", "n4", "login1"]);
        assert_eq!(
            names("r[1-2]n[1-2]-ib"),
            ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]
        );
        assert_eq!(names("n[9-11]"), ["n9", "n10", "n11"]);
    }

    #[test]
    fn broken_and_huge_lists_are_refused() {
        for bad in [
            "",
            ",",
            "n[1-3",
            "n1-3]",
            "n[[1]]",
            "n[]",
            "n[3-1]",
            "n[a]",
            "n[1-]",
            "n[1-016]",
            "n[1-99999999999]",
            "n[1-20000]",
            "n[1-999]m[1-999]",
            "-n",
            "n[-1]",
        ] {
            assert!(expand(bad).is_err(), "{bad:?} was accepted");
        }
        let many = "n[1-9000],m[1-9000]";
        assert_eq!(expand(many), Err(HostListError::TooMany));
        assert_eq!(expand(&"n,".repeat(1_000_000)), Err(HostListError::TooMany));
    }

    #[test]
    fn runs_are_folded() {
        let fold = |text: &str| fold(&expand(text).unwrap()).join(",");
        assert_eq!(fold("n[01-16],x"), "n[01-16],x");
        assert_eq!(fold("n9,n10"), "n9,n10");
        assert_eq!(fold("a1,b2"), "a1,b2");
    }

    proptest! {
        #[test]
        fn what_is_folded_expands_to_the_same_hosts(
            hosts in prop::collection::vec("[a-z0-9][a-z0-9]{0,12}", 1..40)
        ) {
            let hosts: Vec<HostName> = hosts.iter().map(|host| host.parse().unwrap()).collect();
            let again: Vec<_> = fold(&hosts).iter().flat_map(|list| expand(list).unwrap()).collect();
            prop_assert_eq!(again, hosts);
        }
    }
}
