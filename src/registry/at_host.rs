//! What a host makes of its orders, and what it tells of its replicas.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::input::ReplicaReport;
use super::view::Desired;
use crate::identity::HostName;
use crate::port::PortName;
use crate::residency::{Order, ReplicaName, Told};
use crate::supervision::Status;

impl Order for Desired {
    fn told(&self) -> Told {
        Told {
            want: self.want,
            restart_no: self.restart_no,
        }
    }

    fn set_told(&mut self, told: Told) {
        self.want = told.want;
        self.restart_no = told.restart_no;
    }

    fn addresses(&self) -> &BTreeMap<PortName, IpAddr> {
        &self.addresses
    }

    fn extend_addresses(&mut self, more: &BTreeMap<PortName, IpAddr>) {
        let more = more.iter().map(|(port, address)| (port.clone(), *address));
        self.addresses.extend(more);
    }

    fn last_status(&self) -> Option<&Status> {
        self.last_status.as_ref()
    }

    fn lacks(&self) -> Option<String> {
        let mut ports = self.profile.ports.iter();
        let (port, network) = ports.find_map(|port| {
            let network = port.network.as_ref()?;
            (!self.addresses.contains_key(&port.name)).then_some((&port.name, network))
        })?;
        Some(format!("address in network {network} for port {port}"))
    }
}

impl ReplicaReport {
    /// What a host tells of a replica that lives there.
    #[must_use]
    pub fn of(host: HostName, name: &ReplicaName, status: Status) -> Self {
        Self {
            host,
            service: name.service.clone(),
            index: name.index,
            incarnation: name.incarnation,
            service_id: None,
            grant: None,
            status,
        }
    }

    /// The same in a full report: also what it holds, for a controller that does not know it.
    #[must_use]
    pub fn with_order(self, order: Option<&Desired>) -> Self {
        Self {
            service_id: order.map(|order| order.service_id),
            grant: order.map(|order| order.grant.clone()),
            ..self
        }
    }
}
