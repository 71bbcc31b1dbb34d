//! The numbers that the kernel chooses for outgoing connections.

use std::fs;
use std::io;

use portreeve::port::{PortRange, PortRanges};

/// The numbers that the kernel may give to outgoing connections: its range without what is reserved from it.
/// Cost: two small reads below `/proc`.
///
/// # Errors
///
/// The system's, or [`io::ErrorKind::InvalidData`].
pub fn ephemeral() -> io::Result<PortRanges> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")?;
    let reserved = fs::read_to_string("/proc/sys/net/ipv4/ip_local_reserved_ports")?;
    parse(&range, &reserved).ok_or_else(|| {
        let words = format!("{:?} without {:?}", range.trim(), reserved.trim());
        io::Error::new(io::ErrorKind::InvalidData, words)
    })
}

fn parse(range: &str, reserved: &str) -> Option<PortRanges> {
    let (first, last) = range.trim().split_once(char::is_whitespace)?;
    let range = PortRange::new(first.parse().ok()?, last.trim().parse().ok()?)?;
    let reserved = PortRanges::try_from(reserved.trim().to_owned()).ok()?;
    Some(PortRanges::new([range]).difference(&reserved))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_ports_are_not_ephemeral() {
        let shown = |range, reserved| parse(range, reserved).map(|ranges| ranges.to_string());
        assert_eq!(
            shown("32768\t60999\n", "\n").as_deref(),
            Some("32768-60999")
        );
        assert_eq!(
            shown("32768\t60999\n", "8080,40000-40009\n").as_deref(),
            Some("32768-39999,40010-60999")
        );
        assert_eq!(shown("60999 32768", ""), None);
        assert_eq!(shown("", ""), None);
    }

    #[test]
    fn this_kernel_tells_its_range() {
        assert!(!ephemeral().unwrap().is_empty());
    }
}
