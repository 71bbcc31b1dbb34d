//! The variables of a port and of a placement, told one by one: nothing is allocated for them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::identity::{HostName, Incarnation, ServiceName};
use crate::port::{PortName, PortRange};

/// Takes one variable: its name, then its value.
pub type Tell<'a> = dyn FnMut(fmt::Arguments<'_>, fmt::Arguments<'_>) + 'a;

/// A port as its replica is told of it.
#[derive(Clone, Copy, Debug)]
pub struct ToldPort<'a> {
    /// Its name.
    pub name: &'a PortName,
    /// Its number, or its block.
    pub numbers: PortRange,
    /// Where clients are sent; without it nothing is said of that.
    pub address: Option<IpAddr>,
}

impl ToldPort<'_> {
    /// Tells its variables, whose names begin with `prefix`.
    pub fn tell(&self, prefix: &str, tell: &mut Tell<'_>) {
        let name = self.name.as_variable();
        let (first, last) = (self.numbers.first(), self.numbers.last());
        tell(format_args!("{prefix}PORT_{name}"), format_args!("{first}"));
        let count = self.numbers.count();
        if count > 1 {
            tell(
                format_args!("{prefix}PORT_{name}_LAST"),
                format_args!("{last}"),
            );
            tell(
                format_args!("{prefix}PORT_{name}_COUNT"),
                format_args!("{count}"),
            );
        }
        if let Some(address) = self.address {
            let address = SocketAddr::new(address, first.number());
            tell(
                format_args!("{prefix}ADDR_{name}"),
                format_args!("{address}"),
            );
        }
    }
}

/// A placement as its replica is told of it.
#[derive(Clone, Copy, Debug)]
pub struct ToldPlacement<'a> {
    /// The service.
    pub service: &'a ServiceName,
    /// Which copy.
    pub index: u32,
    /// Which placement of it.
    pub incarnation: Incarnation,
    /// The host's name.
    pub host: &'a HostName,
    /// The host's published address; without it nothing is said of that.
    pub host_address: Option<IpAddr>,
}

impl ToldPlacement<'_> {
    /// Tells its variables, whose names begin with `prefix`.
    pub fn tell(&self, prefix: &str, tell: &mut Tell<'_>) {
        let mut set = |name: &str, value: fmt::Arguments<'_>| {
            tell(format_args!("{prefix}{name}"), value);
        };
        set("HOST", format_args!("{}", self.host));
        if let Some(address) = self.host_address {
            set("HOST_ADDR", format_args!("{address}"));
        }
        set("SERVICE", format_args!("{}", self.service.label()));
        set("NAMESPACE", format_args!("{}", self.service.namespace()));
        set("REPLICA", format_args!("{}", self.index));
        set("INCARNATION", format_args!("{}", self.incarnation));
    }
}
